//! windrow-benches
