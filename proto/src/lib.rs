//! The wire forms: Windrow's plan nodes, and the scheduler's service (`v1`).
//!
//! Messages only; what they mean is decided by the crate that owns the node or the service. Field
//! numbers are never used again. `v1` is made from `windrow/v1/*.proto` by this crate's tests, with
//! `WINDROW_WRITE_PROTO=1`, and committed, so that no build needs a protocol compiler.

pub mod status;

/// The scheduler's service, `windrow.v1`.
// Made by a program, whose ways are not ours.
#[allow(clippy::all, clippy::pedantic)]
pub mod v1 {
    include!("generated/windrow.v1.rs");

    /// The files of this package and those that they import, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/windrow.v1.bin");
}

/// A rule that every staged row must keep.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RowRule {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "RuleKind", tag = "2")]
    pub kind: i32,
    /// A DataFusion `PhysicalExprNode`.
    #[prost(bytes = "vec", tag = "3")]
    pub expr: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum RuleKind {
    Unspecified = 0,
    Check = 1,
    NotNull = 2,
    Generated = 3,
    Window = 4,
}

/// The staged-file writer, without its input.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StageNode {
    #[prost(string, tag = "1")]
    pub store_url: String,
    #[prost(string, tag = "2")]
    pub table_path: String,
    #[prost(uint32, repeated, tag = "3")]
    pub partition_columns: Vec<u32>,
    #[prost(string, repeated, tag = "4")]
    pub stats_columns: Vec<String>,
    #[prost(uint64, tag = "5")]
    pub target_file_size: u64,
    #[prost(string, tag = "6")]
    pub file_prefix: String,
    #[prost(message, repeated, tag = "7")]
    pub rules: Vec<RowRule>,
}
