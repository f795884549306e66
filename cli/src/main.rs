//! The `windrow` command.

mod init;

fn main() {}
