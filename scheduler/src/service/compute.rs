//! Where updates, plans and checks are computed: each on threads of its own.
//!
//! A query may keep a thread busy for long without giving way. On shared threads that would silence
//! the port and every other update, and nothing could be stopped. On threads of its own it slows others
//! down no more than the machine's cores do, and a stop can leave it behind: it gets no further than
//! its next pause.

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// Plans of long queries are walked by recursion; the space is only used where it is needed.
const STACK: usize = 256 << 20;

/// Threads for one piece of work. When it is dropped, what still runs on them ends at its next pause.
#[derive(Debug)]
pub(crate) struct Compute(Option<Runtime>);

impl Compute {
    pub(crate) fn new() -> std::io::Result<Self> {
        Builder::new_multi_thread()
            .enable_all()
            .thread_name("compute")
            .thread_stack_size(STACK)
            .build()
            .map(|runtime| Self(Some(runtime)))
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<JoinHandle<T>> {
        self.0.as_ref().map(|runtime| runtime.spawn(work))
    }
}

impl Drop for Compute {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
