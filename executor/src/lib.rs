//! windrow-executor
