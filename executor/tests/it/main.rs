//! Tests of the executor crate through its public interface.

mod folding;
mod golden;
mod rules;
mod wire;
