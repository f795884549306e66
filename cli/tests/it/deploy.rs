//! What a cluster is deployed with (`deploy/`): the chart, its queries, the container file, the local
//! cluster. The checks are in Python, in `tests/deploy`; here they are run.

use std::process::Command;

use crate::python;

#[test]
fn chart_dashboard_container_file_and_local_cluster() {
    let interpreter = python::interpreter_for("deploy").unwrap_or_else(|e| panic!("{e}"));
    let program = std::env::var_os("WINDROW_TEST_PROGRAM");
    let checked = Command::new(interpreter)
        .args(["-W", "ignore", "-m", "unittest"])
        .current_dir(python::folder().join("deploy"))
        .env(
            "WINDROW_TEST_PROGRAM",
            program.unwrap_or_else(|| env!("CARGO_BIN_EXE_windrow").into()),
        )
        .output()
        .unwrap_or_else(|e| panic!("{e}"));
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
    assert!(!said.contains("Ran 0 tests"), "{said}");
}
