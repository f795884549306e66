//! The nearest known word, for "did you mean".

/// The candidate that is nearest to `word`, if one is near enough to be a slip of the keyboard.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let length = lower.chars().count();
    // One slip for each three characters: `in` is not near to `on`, `selct` is near to `select`.
    let slips_allowed = (length / 3).clamp(if length > 1 { 1 } else { 0 }, 3);
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(slips, _)| *slips <= slips_allowed)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}
