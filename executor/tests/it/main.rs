//! Tests of the executor crate through its public interface.

mod golden;
