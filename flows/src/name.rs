//! Names: compared without case, and the nearest known one for a name that is not known.

/// The key under which a name is compared.
pub fn key(name: &str) -> String {
    name.to_lowercase()
}

/// The known name that was most likely meant, if any is near enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = key(name);
    known
        .into_iter()
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&name, &key(candidate)),
                candidate,
            )
        })
        .filter(|(distance, candidate)| {
            *distance <= (name.chars().count().max(candidate.chars().count()) / 3).max(1)
        })
        .min_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.cmp(b.1)))
        .map(|(_, candidate)| candidate)
}

/// "did you mean `x`?", for [`crate::fault::Fault::hint`].
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(name, known).map(|n| format!("did you mean `{n}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        let known = ["orders", "order_items", "customers"];
        assert_eq!(nearest("ordres", known), Some("orders"));
        assert_eq!(nearest("ORDERS", known), Some("orders"));
        assert_eq!(nearest("payments", known), None);
    }
}
