//! The wire forms: Windrow's plan nodes, and the scheduler's service (`v1`).
//!
//! Messages only; what they mean is decided by the crate that owns the node or the service. Field
//! numbers are never used again. `v1` is made from `windrow/v1/*.proto` by this crate's tests, with
//! `WINDROW_WRITE_PROTO=1`, and committed, so that no build needs a protocol compiler. `otlp` is what a
//! collector of traces takes.

pub mod otlp;
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
    /// Tries of the same work differ in this, and so do the names of their files.
    #[prost(uint32, tag = "8")]
    pub attempt: u32,
}

/// A plan node as it travels: one of Windrow's, or one of the distributed runtime's.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PlanNode {
    #[prost(oneof = "plan_node::Node", tags = "1, 2, 3, 4")]
    pub node: Option<plan_node::Node>,
}

/// The kinds of [`PlanNode`].
pub mod plan_node {
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Node {
        #[prost(message, tag = "1")]
        Stage(super::StageNode),
        #[prost(message, tag = "2")]
        KeptRows(super::KeptRowsNode),
        /// What the distributed runtime's own codec wrote.
        #[prost(bytes, tag = "3")]
        Runtime(Vec<u8>),
        /// Keeps what lies above it in one task.
        #[prost(message, tag = "4")]
        OneTask(super::OneTaskNode),
    }
}

/// Keeps what lies above it in one task.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OneTaskNode {}

/// Which rows of a scan's files are still there.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeptRowsNode {
    /// Every file of the scan.
    #[prost(message, repeated, tag = "1")]
    pub files: Vec<KeptRowsOfFile>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct KeptRowsOfFile {
    /// Identifies the file within the scan.
    #[prost(string, tag = "1")]
    pub file: String,
    /// Lengths of runs of rows, left out and kept in turn, beginning with left out; none for a file
    /// of which all rows are there.
    #[prost(uint64, repeated, tag = "2")]
    pub runs: Vec<u64>,
}

/// What a conversion function holds besides its name.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConvertFunction {
    /// The column that messages name.
    #[prost(string, tag = "1")]
    pub column: String,
    /// A DataFusion `ArrowType`.
    #[prost(bytes = "vec", tag = "2")]
    pub to: Vec<u8>,
}
