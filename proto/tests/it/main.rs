//! The generated code is what the files under `windrow/v1` say.

use std::path::{Path, PathBuf};

use prost::Message;

const FILES: [&str; 3] = [
    "windrow/v1/pipeline.proto",
    "windrow/v1/update.proto",
    "windrow/v1/service.proto",
];

fn generate(into: &Path) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let files: Vec<PathBuf> = FILES.iter().map(|f| root.join(f)).collect();
    let mut compiler = protox::Compiler::new([&root]).expect("the folder of this crate");
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(&files).expect("files that are right");
    let described = compiler.file_descriptor_set();
    tonic_prost_build::configure()
        .out_dir(into)
        .btree_map(".")
        .emit_rerun_if_changed(false)
        .compile_fds(described.clone())
        .expect("code");
    // What a client asks for over the wire needs no comments.
    let mut bare = described;
    for file in &mut bare.file {
        file.source_code_info = None;
    }
    std::fs::write(into.join("windrow.v1.bin"), bare.encode_to_vec()).expect("a file");
}

#[test]
fn the_generated_code_is_of_these_files() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated");
    let made = std::env::temp_dir().join(format!("windrow-proto-{}", std::process::id()));
    std::fs::create_dir_all(&made).expect("a folder");
    generate(&made);
    let writes = std::env::var_os("WINDROW_WRITE_PROTO").is_some();
    let mut names: Vec<_> = std::fs::read_dir(&made)
        .expect("a folder")
        .map(|e| e.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["windrow.v1.bin", "windrow.v1.rs"]);
    for name in names {
        let fresh = std::fs::read(made.join(&name)).expect("a file");
        if writes {
            std::fs::write(committed.join(&name), fresh).expect("written");
        } else {
            let there = std::fs::read(committed.join(&name)).expect("a committed file");
            assert!(
                there == fresh,
                "{name:?} is not what the proto files say; run this test with WINDROW_WRITE_PROTO=1"
            );
        }
    }
    std::fs::remove_dir_all(&made).expect("removed");
}
