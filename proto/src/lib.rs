//! windrow-proto
