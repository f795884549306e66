//! windrow-scheduler
