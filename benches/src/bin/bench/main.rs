//! Measures Windrow against plain DataFusion: `bench [NAME] [--scale N] [--repeat N] [--windrow PATH]
//! [--cache DIR] [--share PART]`. See the README beside the crate.
//!
//! Both sides are processes of their own that run in turn; what is told are medians, ratios and peaks.

mod baseline;
mod cases;
mod cluster;
mod expressions;
mod measure;
mod refresh;
mod report;
mod share;
mod synthetic;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use cases::Bench;

const USAGE: &str = "\
usage: bench [window|nothing|planning|years|incremental|update100|noop20|growth|choice|expressions|cluster|scaling|queue|idle] [--scale N] [--repeat N] \
[--windrow PATH] [--cache DIR] [--share PART]";

/// Windrow's allocator, so that the baseline has the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [command, task] if command == baseline::COMMAND => baseline::run(task),
        arguments => run(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("  because: {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let mut bench = Bench {
        windrow: own.with_file_name(format!("windrow{}", std::env::consts::EXE_SUFFIX)),
        cache: std::env::temp_dir().join("windrow-bench"),
        scale: None,
        repeat: 5,
        share: None,
    };
    let mut name = None;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--scale" => bench.scale = Some(value()?.parse()?),
            "--repeat" => bench.repeat = value()?.parse::<usize>()?.max(1),
            "--share" => bench.share = Some(value()?.parse()?),
            "--windrow" => bench.windrow = PathBuf::from(value()?),
            "--cache" => bench.cache = std::path::absolute(value()?)?,
            option if option.starts_with('-') || name.is_some() => return Err(USAGE.into()),
            _ => name = Some(argument.clone()),
        }
    }
    if !bench.windrow.exists() {
        return Err(format!(
            "there is no `{}`: build it with `cargo build -p windrow-cli`, or say --windrow PATH",
            bench.windrow.display()
        )
        .into());
    }
    std::fs::create_dir_all(&bench.cache)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let measurements = runtime.block_on(bench.run(name.as_deref()))?;
    print!("{}", report::table(&measurements));
    println!("{}", report::to_json(&measurements));
    Ok(())
}
