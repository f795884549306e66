//! How a flow is refreshed: which technique, and why not a cheaper one.
//!
//! A pure decision over facts that the scheduler gathered. The order of reasons, and which of them
//! stand alone, are those of the event that users know.

use serde::Serialize;

/// How the rows of an update are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Technique {
    /// Nothing that can reach the window changed: nothing is computed.
    NoOp,
    /// The slices of the window that a change touches are computed anew.
    PartitionOverwrite,
    /// The window is computed anew.
    CompleteRecompute,
}

impl Technique {
    pub fn word(self) -> &'static str {
        match self {
            Self::NoOp => "NO_OP",
            Self::PartitionOverwrite => "PARTITION_OVERWRITE",
            Self::CompleteRecompute => "COMPLETE_RECOMPUTE",
        }
    }
}

/// Why the whole window is computed. Declared in the order in which they are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FallbackReason {
    FullRefreshRequested,
    /// The flow has no earlier refresh by its defined predicate.
    ChangeSetMissing,
    QueryFingerprintChanged,
    /// The window holds rows that the previous one did not, or this run uses an override, or the
    /// predicate reaches no source.
    UnsupportedReplaceWherePredicate,
    ReplaceWhereNotDeterministic,
    ExternalChangeInReplaceWindow,
    /// The query itself can't be repeated.
    PlanNotDeterministic,
    /// A source was made anew, or its log no longer reaches back.
    DataFileMissing,
    /// The columns of a source are not those of the last refresh.
    DataSchemaChanged,
    /// A source is no Delta table.
    InputNotInDelta,
    TimeZoneChanged,
    /// No technique that this version has applies to the change.
    IncrementalTechniqueNotAvailable,
}

impl FallbackReason {
    pub fn word(self) -> &'static str {
        match self {
            Self::FullRefreshRequested => "FULL_REFRESH_REQUESTED",
            Self::ChangeSetMissing => "CHANGE_SET_MISSING",
            Self::QueryFingerprintChanged => "QUERY_FINGERPRINT_CHANGED",
            Self::UnsupportedReplaceWherePredicate => "UNSUPPORTED_REPLACE_WHERE_PREDICATE",
            Self::ReplaceWhereNotDeterministic => "REPLACE_WHERE_NOT_DETERMINISTIC",
            Self::ExternalChangeInReplaceWindow => "EXTERNAL_CHANGE_IN_REPLACE_WINDOW",
            Self::PlanNotDeterministic => "PLAN_NOT_DETERMINISTIC",
            Self::DataFileMissing => "DATA_FILE_MISSING",
            Self::DataSchemaChanged => "DATA_SCHEMA_CHANGED",
            Self::InputNotInDelta => "INPUT_NOT_IN_DELTA",
            Self::TimeZoneChanged => "TIME_ZONE_CHANGED",
            Self::IncrementalTechniqueNotAvailable => "INCREMENTAL_TECHNIQUE_NOT_AVAILABLE",
        }
    }
}

/// What is known of a source since the last refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceChange {
    /// No commit, or only commits that rearrange.
    Unchanged,
    /// Rows changed that may reach the window.
    Changed,
    /// Another table at the same place, or a log that no longer reaches back.
    HistoryGone,
    /// Columns were added, dropped, renamed or given other types.
    SchemaChanged,
    /// Files without versions.
    NotInDelta,
}

/// The facts about one flow at the start of an update.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub full_refresh: bool,
    pub is_override: bool,
    /// There is a state of a refresh by the defined predicate.
    pub has_state: bool,
    pub query_changed: bool,
    pub time_zone_changed: bool,
    /// The window surely holds no row that the last one did not.
    pub window_covered: bool,
    pub predicate_deterministic: bool,
    /// False when the query uses rand and the like, or the clock and the clock has moved.
    pub query_repeatable: bool,
    pub external_change_in_window: bool,
    pub sources: Vec<SourceChange>,
    /// The predicate reaches every changed source, so that slices can be told apart.
    pub predicate_reaches_changes: bool,
    /// The changed slices are known.
    pub slices_known: bool,
}

/// The technique and the reasons against cheaper ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub technique: Technique,
    pub reasons: Vec<FallbackReason>,
}

impl Decision {
    /// Nothing is to be done after all: the change touches no slice of the window.
    pub fn no_op() -> Self {
        Self {
            technique: Technique::NoOp,
            reasons: Vec::new(),
        }
    }
}

/// Decides. `NO_OP` and `PARTITION_OVERWRITE` come without reasons.
pub fn decide(facts: &Facts) -> Decision {
    let full = |reasons: Vec<FallbackReason>| Decision {
        technique: Technique::CompleteRecompute,
        reasons,
    };
    if facts.full_refresh {
        return full(vec![FallbackReason::FullRefreshRequested]);
    }
    if !facts.has_state {
        let mut reasons = vec![FallbackReason::ChangeSetMissing];
        if facts.is_override {
            reasons.push(FallbackReason::UnsupportedReplaceWherePredicate);
        }
        return full(reasons);
    }
    let any = |change: SourceChange| facts.sources.contains(&change);
    let changed = any(SourceChange::Changed);
    let mut reasons = Vec::new();
    let mut when = |condition: bool, reason: FallbackReason| {
        if condition {
            reasons.push(reason);
        }
    };
    when(facts.query_changed, FallbackReason::QueryFingerprintChanged);
    when(
        facts.is_override || !facts.window_covered || (changed && !facts.predicate_reaches_changes),
        FallbackReason::UnsupportedReplaceWherePredicate,
    );
    when(
        !facts.predicate_deterministic,
        FallbackReason::ReplaceWhereNotDeterministic,
    );
    when(
        facts.external_change_in_window,
        FallbackReason::ExternalChangeInReplaceWindow,
    );
    when(
        !facts.query_repeatable,
        FallbackReason::PlanNotDeterministic,
    );
    when(
        any(SourceChange::HistoryGone),
        FallbackReason::DataFileMissing,
    );
    when(
        any(SourceChange::SchemaChanged),
        FallbackReason::DataSchemaChanged,
    );
    when(
        any(SourceChange::NotInDelta),
        FallbackReason::InputNotInDelta,
    );
    when(facts.time_zone_changed, FallbackReason::TimeZoneChanged);
    if !reasons.is_empty() {
        return full(reasons);
    }
    if !changed {
        return Decision {
            technique: Technique::NoOp,
            reasons,
        };
    }
    if facts.slices_known {
        return Decision {
            technique: Technique::PartitionOverwrite,
            reasons,
        };
    }
    full(vec![FallbackReason::IncrementalTechniqueNotAvailable])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Facts {
        Facts {
            has_state: true,
            window_covered: true,
            predicate_deterministic: true,
            query_repeatable: true,
            predicate_reaches_changes: true,
            slices_known: true,
            sources: vec![SourceChange::Unchanged],
            ..Facts::default()
        }
    }

    #[test]
    fn nothing_changed_means_nothing_to_do() {
        assert_eq!(
            decide(&quiet()),
            Decision {
                technique: Technique::NoOp,
                reasons: vec![]
            }
        );
        let changed = Facts {
            sources: vec![SourceChange::Changed],
            ..quiet()
        };
        assert_eq!(decide(&changed).technique, Technique::PartitionOverwrite);
    }

    #[test]
    fn the_first_refresh_and_a_full_refresh_have_one_reason() {
        let first = Facts {
            has_state: false,
            external_change_in_window: true,
            ..quiet()
        };
        assert_eq!(decide(&first).reasons, [FallbackReason::ChangeSetMissing]);
        let full = Facts {
            full_refresh: true,
            has_state: false,
            ..quiet()
        };
        assert_eq!(
            decide(&full).reasons,
            [FallbackReason::FullRefreshRequested]
        );
    }

    #[test]
    fn a_source_with_other_columns_is_read_as_a_whole() {
        let facts = Facts {
            sources: vec![SourceChange::SchemaChanged],
            ..quiet()
        };
        assert_eq!(decide(&facts).reasons, [FallbackReason::DataSchemaChanged]);
    }

    #[test]
    fn all_reasons_that_stand_are_listed_in_order() {
        let facts = Facts {
            query_changed: true,
            is_override: true,
            time_zone_changed: true,
            external_change_in_window: true,
            sources: vec![SourceChange::HistoryGone],
            ..quiet()
        };
        let reasons = decide(&facts).reasons;
        let mut sorted = reasons.clone();
        sorted.sort();
        assert_eq!(reasons, sorted);
        assert_eq!(reasons.len(), 5);
    }
}
