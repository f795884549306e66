//! Sample data and measurements for Windrow.
//!
//! [`lake`] makes Delta tables of any size to run pipelines over. What a pipeline does with them
//! belongs to the other crates.

pub mod lake;
