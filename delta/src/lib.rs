//! windrow-delta
