//! The language and the meaning of Windrow pipelines.
//!
//! Pure: no IO, no clock, no randomness. What a statement means, what a window is, which order
//! flows run in and whether a schema may change is decided here, from values, and tested here
//! without a table. Reading and writing tables is left to the crates above.

pub mod calendar;
pub mod definition;
pub mod dialect;
pub mod fault;
pub mod graph;
pub mod name;
pub mod ranges;
pub mod refresh;
pub mod render;
pub mod sql;
pub mod types;
pub mod window;
