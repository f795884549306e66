//! windrow-executor

pub mod spark;
