//! All scenarios, one test each; they lie in `tests/scenarios/AREA/NAME.test`.

macro_rules! scenarios {
    ($($area:ident { $($name:ident)* })*) => {
        $(mod $area {
            $(#[test]
            fn $name() {
                crate::scenario::run(concat!(stringify!($area), "/", stringify!($name)));
            })*
        })*

        const LISTED: &[&str] = &[$($(concat!(stringify!($area), "/", stringify!($name))),*),*];
    };
}

scenarios! {
    backfill {
        a_commit_for_each_slice
        boundary_rows_once
        gaps_between_windows
        refused
        slices_that_fail
        the_whole_range_at_once
        what_is_missing
    }
    replace_where {
        aggregates_after_deletes
        all_types_survive_a_rewrite
        any_predicate
        between_two_dates_on_a_timestamp
        both_forms_of_the_statement
        columns_match_by_name
        empty_result_removes_the_window
        empty_string_in_a_partition_column
        equal_names_on_both_sides_of_a_join
        failed_refresh_leaves_no_hole
        left_join_while_dimension_rows_come_and_go
        nan_beyond_file_statistics
        null_in_the_predicate_column
        null_partition_alone
        one_clock_at_midnight
        only_recent_rows_see_a_changed_dimension
        output_column_shadows_a_source_column
        own_rows_by_dml
        partition_values_that_look_encoded
        partition_values_with_reserved_characters
        refused_predicates
        reserved_words_and_quotes_as_names
        rolling_window_with_a_dimension
        session_zone_on_both_halves
        statistics_cut_to_milliseconds
        straddling_files_are_rewritten_others_left
        target_outlives_the_source
        twenty_five_overwrites
        window_function_under_the_predicate
        window_moved_back
        worked_example
    }
    overrides {
        between_two_nightly_runs
        correct_one_table_over_a_period
        full_refresh_forgets_history
        initial_load_of_years
        or_does_not_escape
        refused
        string_bounds_on_a_date_partition
        two_dimensions
    }
    pipeline {
        configuration_and_libraries
        faults_before_anything
        faulty_pipeline_file
        foreign_table_at_the_target
        names
        names_that_are_no_folders
        order_and_failures
        plan_and_validate_write_nothing
        table_clauses
    }
    schema {
        column_dropped_from_the_query
        incompatible_changes
        new_column_in_the_middle
        new_metric
        reordered_and_recased_columns
        rules_that_older_rows_may_break
        safe_widening
    }
    interop {
        column_mapping_in_the_source
        columns_swapped_by_renames
        compaction_of_the_source
        decimal_that_does_not_fit
        deletion_vectors_in_the_source
        deletion_vectors_in_the_target
        each_file_is_read_once
        log_and_files_gone
        source_made_anew
        zoned_and_naive_timestamps
    }
    verify {
        differences_are_shown
        nothing_to_verify
        rounding_is_no_difference
        slices_and_views
        sources_at_their_versions
    }
    incremental {
        appended_rows_touch_no_file
        a_source_from_a_backup
        change_data_gone
        change_data_of_partitions
        change_data_tell_the_rows
        columns_that_nobody_reads
        estimates_learn
        groups_take_new_rows_in
        override_over_a_passing_state
        reasons_in_words
        refresh_policies
        rows_with_touched_keys
        windows_that_grow
    }
    sql {
        equal_floats_join_and_deduplicate
        extremes_of_infinities
        filter_above_an_outer_join
        functions_of_a_date_prune_files
        generators_and_lambdas
        local_times_of_a_clock_change
        not_in_with_null
        null_safe_join_beside_an_equal
        null_nan_and_zero_as_groups
        sums_that_overflow
        union_by_name
        wrong_arguments
    }
}

#[test]
fn every_file_is_listed() {
    let mut found = Vec::new();
    for area in std::fs::read_dir(crate::scenario::folder())
        .unwrap()
        .map(Result::unwrap)
    {
        if area.path().is_dir() {
            for file in std::fs::read_dir(area.path()).unwrap().map(Result::unwrap) {
                let (area, file) = (area.file_name(), file.file_name());
                let path = format!("{}/{}", area.to_string_lossy(), file.to_string_lossy());
                found.push(path.trim_end_matches(".test").to_string());
            }
        }
    }
    found.sort();
    let mut listed: Vec<&str> = LISTED.to_vec();
    listed.sort();
    assert_eq!(
        found, listed,
        "files in tests/scenarios and names in scenarios.rs"
    );
}
