//! Which executors are there, by calls that last as long as they are. Their end tells of a loss at
//! once; the runtime itself would only know after a time without a poll. The calls also carry what
//! the runtime can't tell executors that ask for their work: to stop it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::serde::protobuf::ExecutorStoppedParams;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpc;
use futures::Stream;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};
use windrow_executor::link::same_version;
use windrow_proto::v1::executor_service_server::ExecutorService;
use windrow_proto::v1::{AskForWork, AttendRequest, CancelJob, Order, order};

use super::Runtime;

/// How long an executor may take to come back after its call broke off.
const GRACE: Duration = Duration::from_millis(1500);
/// Orders that wait for an executor; one that does not take them is as good as lost.
const WAITING: usize = 1024;

/// See the module's description.
#[derive(Clone)]
pub(crate) struct Attendance {
    runtime: Runtime,
    present: Room,
}

/// The executors that are there.
#[derive(Clone, Default)]
pub(crate) struct Room(Arc<Mutex<BTreeMap<String, Present>>>);

struct Present {
    orders: mpsc::Sender<Result<Order, Status>>,
    /// Which of its calls this is.
    call: u64,
}

impl Room {
    fn present(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Present>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, order: order::Order) {
        let order = Order { order: Some(order) };
        for present in self.present().values() {
            // An executor that is gone or does not listen ends its tasks by itself, and asks for others.
            let _ = present.orders.try_send(Ok(order.clone()));
        }
    }

    /// Has all executors ask for tasks at once.
    pub(crate) fn wake(&self) {
        self.tell(order::Order::AskForWork(AskForWork {}));
    }
}

impl Attendance {
    pub(crate) fn new(runtime: Runtime, present: Room) -> Self {
        Self { runtime, present }
    }

    fn present(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Present>> {
        self.present.present()
    }

    /// Tells all executors that nobody waits for a job any more.
    pub(crate) fn cancel(&self, job: &str) {
        self.present.tell(order::Order::CancelJob(CancelJob {
            job_id: job.to_string(),
        }));
    }

    /// The call of an executor ended: unless it comes back soon, it is lost.
    fn left(&self, executor: String, call: u64) {
        let attendance = self.clone();
        let Ok(handle) = tokio::runtime::Handle::try_current() else {
            return;
        };
        handle.spawn(async move {
            tokio::time::sleep(GRACE).await;
            let is_gone = {
                let mut present = attendance.present();
                match present.get(&executor) {
                    Some(now) if now.call == call => present.remove(&executor).is_some(),
                    _ => false,
                }
            };
            if !is_gone {
                return;
            }
            let lost = ExecutorStoppedParams {
                executor_id: executor.clone(),
                reason: "its connection broke off".into(),
            };
            if let Err(status) = attendance
                .runtime
                .executor_stopped(Request::new(lost))
                .await
            {
                tracing::debug!(executor, reason = status.message(), "it was gone already");
            }
        });
    }
}

/// The orders of a call; its end is noticed when it is dropped.
pub(crate) struct Orders {
    orders: mpsc::Receiver<Result<Order, Status>>,
    attendance: Attendance,
    executor: String,
    call: u64,
}

impl Stream for Orders {
    type Item = Result<Order, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.orders.poll_recv(context)
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        self.attendance
            .left(std::mem::take(&mut self.executor), self.call);
    }
}

#[async_trait]
impl ExecutorService for Attendance {
    type AttendStream = Orders;

    async fn attend(
        &self,
        request: Request<AttendRequest>,
    ) -> Result<Response<Self::AttendStream>, Status> {
        same_version(request.metadata())?;
        let executor = request.into_inner().executor_id;
        if executor.is_empty() {
            return Err(Status::invalid_argument("an executor has an id"));
        }
        let (give, orders) = mpsc::channel(WAITING);
        let call = {
            let mut present = self.present();
            let call = present.get(&executor).map_or(1, |p| p.call + 1);
            present.insert(executor.clone(), Present { orders: give, call });
            call
        };
        Ok(Response::new(Orders {
            orders,
            attendance: self.clone(),
            executor,
            call,
        }))
    }
}
