//! How a flow is refreshed: which technique, and why not a cheaper one.
//!
//! A pure decision over facts that the scheduler gathered. The order of reasons, and which of them
//! stand alone, are those of the event that users know.

use serde::{Deserialize, Serialize};

/// How the rows of an update are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Technique {
    /// Nothing that can reach the window changed: nothing is computed.
    NoOp,
    /// The query over the new rows; nothing is removed.
    AppendOnly,
    /// The aggregates of the new rows, merged into the stored groups.
    GroupAggregate,
    /// The groups that a change touches are computed anew.
    GenericAggregate,
    /// The rows that a change touches are computed anew.
    RowBased,
    /// The partitions of window functions that a change touches are computed anew.
    WindowFunction,
    /// The slices of the window that a change touches are computed anew.
    PartitionOverwrite,
    /// The window is computed anew.
    CompleteRecompute,
}

impl Technique {
    /// All, the cheapest first as a rule.
    pub const ALL: [Self; 8] = [
        Self::NoOp,
        Self::AppendOnly,
        Self::GroupAggregate,
        Self::GenericAggregate,
        Self::RowBased,
        Self::WindowFunction,
        Self::PartitionOverwrite,
        Self::CompleteRecompute,
    ];

    /// The technique of that name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|t| t.word().eq_ignore_ascii_case(word.trim()))
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::NoOp => "NO_OP",
            Self::AppendOnly => "APPEND_ONLY",
            Self::GroupAggregate => "GROUP_AGGREGATE",
            Self::GenericAggregate => "GENERIC_AGGREGATE",
            Self::RowBased => "ROW_BASED",
            Self::WindowFunction => "WINDOW_FUNCTION",
            Self::PartitionOverwrite => "PARTITION_OVERWRITE",
            Self::CompleteRecompute => "COMPLETE_RECOMPUTE",
        }
    }
}

/// The table property in which a table's refresh policy stands.
pub const POLICY_PROPERTY: &str = "pipelines.refreshPolicy";

/// What the author of a table wants of the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RefreshPolicy {
    /// The cheapest.
    #[default]
    Auto,
    /// A part of the window wherever that is right, whatever it costs.
    Incremental,
    /// As [`Self::Incremental`]; where it is not possible the flow fails.
    IncrementalStrict,
    /// Always the whole window.
    Full,
}

impl RefreshPolicy {
    /// The names, as messages show them.
    pub const WORDS: &str = "auto, incremental, incremental_strict or full";

    /// The policy of that name; `_` and blanks are the same.
    pub fn of_word(word: &str) -> Option<Self> {
        let words: Vec<String> = word
            .split(|c: char| c == '_' || c.is_whitespace())
            .filter(|w| !w.is_empty())
            .map(str::to_lowercase)
            .collect();
        match words.join("_").as_str() {
            "auto" => Some(Self::Auto),
            "incremental" => Some(Self::Incremental),
            "incremental_strict" => Some(Self::IncrementalStrict),
            "full" => Some(Self::Full),
            _ => None,
        }
    }
}

/// Why the whole window is computed. Declared in the order in which they are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// The predicate of the last refresh was not.
    PriorReplaceWhereNotDeterministic,
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
    /// The query has a form in which a change may touch every row of the result.
    PlanNotIncrementalizable,
    /// The cheapest other technique was estimated to be dearer than computing the window.
    IncrementalPlanRejectedByCostModel,
}

impl FallbackReason {
    pub fn word(self) -> &'static str {
        match self {
            Self::FullRefreshRequested => "FULL_REFRESH_REQUESTED",
            Self::ChangeSetMissing => "CHANGE_SET_MISSING",
            Self::QueryFingerprintChanged => "QUERY_FINGERPRINT_CHANGED",
            Self::UnsupportedReplaceWherePredicate => "UNSUPPORTED_REPLACE_WHERE_PREDICATE",
            Self::ReplaceWhereNotDeterministic => "REPLACE_WHERE_NOT_DETERMINISTIC",
            Self::PriorReplaceWhereNotDeterministic => "PRIOR_REPLACE_WHERE_NOT_DETERMINISTIC",
            Self::ExternalChangeInReplaceWindow => "EXTERNAL_CHANGE_IN_REPLACE_WINDOW",
            Self::PlanNotDeterministic => "PLAN_NOT_DETERMINISTIC",
            Self::DataFileMissing => "DATA_FILE_MISSING",
            Self::DataSchemaChanged => "DATA_SCHEMA_CHANGED",
            Self::InputNotInDelta => "INPUT_NOT_IN_DELTA",
            Self::TimeZoneChanged => "TIME_ZONE_CHANGED",
            Self::PlanNotIncrementalizable => "PLAN_NOT_INCREMENTALIZABLE",
            Self::IncrementalPlanRejectedByCostModel => "INCREMENTAL_PLAN_REJECTED_BY_COST_MODEL",
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
    /// The predicate of the last refresh was.
    pub prior_predicate_deterministic: bool,
    /// False when the query uses rand and the like, or the clock and the clock has moved.
    pub query_repeatable: bool,
    pub external_change_in_window: bool,
    pub sources: Vec<SourceChange>,
    /// The predicate reaches some source, so that a change can be told from one outside the window.
    pub predicate_reaches: bool,
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

/// Decides whether the window must be computed as a whole, or not at all. `None` leaves the choice
/// among the techniques between: the state can be trusted, and sources changed.
pub fn decide(facts: &Facts) -> Option<Decision> {
    let full = |reasons| Some(decision_for(reasons));
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
        facts.is_override || !facts.window_covered || (changed && !facts.predicate_reaches),
        FallbackReason::UnsupportedReplaceWherePredicate,
    );
    when(
        !facts.predicate_deterministic,
        FallbackReason::ReplaceWhereNotDeterministic,
    );
    when(
        !facts.prior_predicate_deterministic,
        FallbackReason::PriorReplaceWhereNotDeterministic,
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
    (!changed).then(Decision::no_op)
}

/// A recomputation of the whole window, for these reasons.
pub fn decision_for(reasons: Vec<FallbackReason>) -> Decision {
    Decision {
        technique: Technique::CompleteRecompute,
        reasons,
    }
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
            predicate_reaches: true,
            prior_predicate_deterministic: true,
            sources: vec![SourceChange::Unchanged],
            ..Facts::default()
        }
    }

    fn reasons(facts: &Facts) -> Vec<FallbackReason> {
        decide(facts).map(|d| d.reasons).unwrap_or_default()
    }

    #[test]
    fn nothing_changed_means_nothing_to_do() {
        assert_eq!(decide(&quiet()), Some(Decision::no_op()));
        let changed = Facts {
            sources: vec![SourceChange::Changed],
            ..quiet()
        };
        assert_eq!(decide(&changed), None);
        let unreached = Facts {
            predicate_reaches: false,
            ..changed
        };
        assert_eq!(
            reasons(&unreached),
            [FallbackReason::UnsupportedReplaceWherePredicate]
        );
    }

    #[test]
    fn the_first_refresh_and_a_full_refresh_have_one_reason() {
        let first = Facts {
            has_state: false,
            external_change_in_window: true,
            ..quiet()
        };
        assert_eq!(reasons(&first), [FallbackReason::ChangeSetMissing]);
        let full = Facts {
            full_refresh: true,
            has_state: false,
            ..quiet()
        };
        assert_eq!(reasons(&full), [FallbackReason::FullRefreshRequested]);
    }

    #[test]
    fn a_source_with_other_columns_is_read_as_a_whole() {
        let facts = Facts {
            sources: vec![SourceChange::SchemaChanged],
            ..quiet()
        };
        assert_eq!(reasons(&facts), [FallbackReason::DataSchemaChanged]);
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
        let reasons = reasons(&facts);
        let mut sorted = reasons.clone();
        sorted.sort();
        assert_eq!(reasons, sorted);
        assert_eq!(reasons.len(), 5);
    }
}
