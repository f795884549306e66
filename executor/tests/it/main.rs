//! Tests of the executor crate through its public interface.

mod folding;
mod functions;
mod golden;
mod rules;
mod tpcds;
mod tpch;
mod wire;
