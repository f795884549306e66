//! Requests to object stores, counted by what they ask for and by what comes of them.
//!
//! Counted where they leave as HTTP: the client of a store tries failed ones again by itself, and nobody
//! above it sees that. A request that is tried again is the same, header for header, as one that has just
//! failed, and so it is known.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use tracing::Instrument;

use crate::figures::{Counter, Figures};

/// The target of the spans of requests.
pub const TARGET: &str = "windrow::store";

const OPERATIONS: [&str; 8] = [
    "get",
    "head",
    "list",
    "put",
    "delete",
    "copy",
    "multipart",
    "other",
];
const OUTCOMES: [&str; 7] = [
    "ok",
    "not_found",
    "conflict",
    "denied",
    "throttled",
    "error",
    "unreachable",
];

static REQUESTS: [[Counter; OUTCOMES.len()]; OPERATIONS.len()] =
    [const { [const { Counter::new() }; OUTCOMES.len()] }; OPERATIONS.len()];
static RETRIES: [Counter; OPERATIONS.len()] = [const { Counter::new() }; OPERATIONS.len()];

/// Failed requests that may be tried again; more at a time are not recognized.
const MOST_FAILED: usize = 1024;

#[derive(Debug)]
struct Failed {
    /// Nothing has to be locked as long as nothing fails.
    any: AtomicBool,
    requests: Mutex<VecDeque<u64>>,
}

static FAILED: Failed = Failed {
    any: AtomicBool::new(false),
    requests: Mutex::new(VecDeque::new()),
};

impl Failed {
    fn remember(&self, request: u64) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.len() >= MOST_FAILED {
            requests.pop_front();
        }
        requests.push_back(request);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether the request had failed before; it is forgotten.
    fn take(&self, request: u64) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let at = requests.iter().position(|failed| *failed == request);
        if let Some(at) = at {
            requests.remove(at);
        }
        self.any.store(!requests.is_empty(), Ordering::Relaxed);
        at.is_some()
    }
}

/// What a request is for, as an index of [`OPERATIONS`].
fn operation(request: &HttpRequest) -> usize {
    let uri = request.uri();
    let has = |name: &str| {
        let pairs = uri.query().unwrap_or_default().split('&');
        pairs
            .into_iter()
            .any(|pair| pair.split('=').next() == Some(name))
    };
    let name = match request.method().as_str() {
        _ if has("uploadId") || has("uploads") => "multipart",
        "GET" if has("list-type") => "list",
        "GET" => "get",
        "HEAD" => "head",
        "PUT" if request.headers().contains_key("x-amz-copy-source") => "copy",
        "PUT" => "put",
        "DELETE" => "delete",
        "POST" if has("delete") => "delete",
        _ => "other",
    };
    position(&OPERATIONS, name)
}

/// What came of a request, as an index of [`OUTCOMES`].
fn outcome(status: Option<u16>) -> usize {
    let name = match status {
        None => "unreachable",
        Some(200..=299) => "ok",
        Some(404) => "not_found",
        // The condition of a conditional request does not hold, which is what it asked for.
        Some(304 | 409 | 412) => "conflict",
        Some(401 | 403) => "denied",
        Some(429 | 503) => "throttled",
        Some(_) => "error",
    };
    position(&OUTCOMES, name)
}

fn position(names: &[&str], name: &str) -> usize {
    // Each name that is given out above is in its list.
    names.iter().position(|n| *n == name).unwrap_or_default()
}

/// What tells a request from others: where there is a signature, it is of the whole and of the second.
fn identity(request: &HttpRequest) -> u64 {
    let mut hasher = DefaultHasher::new();
    request.method().hash(&mut hasher);
    request.uri().hash(&mut hasher);
    for name in ["authorization", "range", "if-none-match", "if-match"] {
        request.headers().get(name).hash(&mut hasher);
    }
    hasher.finish()
}

/// Writes what was counted since the process began.
pub fn figures(figures: &mut Figures) {
    let all = OPERATIONS.iter().zip(&REQUESTS).flat_map(|(of, counters)| {
        OUTCOMES
            .iter()
            .zip(counters)
            .map(move |(outcome, counter)| {
                let labels = format!("{{operation=\"{of}\",outcome=\"{outcome}\"}}");
                (labels, counter.get())
            })
    });
    figures.family(
        "windrow_store_requests_total",
        "counter",
        "Requests to the object store, those that were tried again each for itself.",
        all,
    );
    figures.by(
        "windrow_store_retries_total",
        "counter",
        "Requests to the object store that repeated one that had failed.",
        "operation",
        OPERATIONS
            .iter()
            .zip(&RETRIES)
            .map(|(of, counter)| (*of, counter.get())),
    );
}

/// Makes clients whose requests are counted.
#[derive(Debug)]
pub(crate) struct Counting<C = ReqwestConnector>(C);

impl Default for Counting {
    fn default() -> Self {
        Self(ReqwestConnector::default())
    }
}

impl<C: HttpConnector> HttpConnector for Counting<C> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(CountingClient(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct CountingClient(HttpClient);

#[async_trait]
impl HttpService for CountingClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (operation, identity) = (operation(&request), identity(&request));
        let is_retry = FAILED.take(identity);
        if is_retry {
            RETRIES[operation].add(1);
        }
        let span = tracing::info_span!(
            target: TARGET,
            "store",
            otel.name = OPERATIONS[operation],
            otel.kind = "client",
            path = request.uri().path(),
            retry = is_retry,
            outcome = tracing::field::Empty,
        );
        let answer = self.0.execute(request).instrument(span.clone()).await;
        let outcome = outcome(answer.as_ref().ok().map(|a| a.status().as_u16()));
        span.record("outcome", OUTCOMES[outcome]);
        REQUESTS[operation][outcome].add(1);
        if matches!(OUTCOMES[outcome], "throttled" | "error" | "unreachable") {
            FAILED.remember(identity);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use object_store::aws::AmazonS3Builder;
    use object_store::client::{HttpErrorKind, HttpResponseBody};
    use object_store::path::Path;
    use object_store::{BackoffConfig, ObjectStoreExt, RetryConfig};

    use super::*;

    /// Fails in all ways before it answers.
    #[derive(Debug, Clone, Default)]
    struct Moody(Arc<AtomicUsize>);

    impl HttpConnector for Moody {
        fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
            Ok(HttpClient::new(self.clone()))
        }
    }

    #[async_trait]
    impl HttpService for Moody {
        async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
            let status = match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => 503,
                1 => {
                    let broken = std::io::Error::other("the line is cut");
                    return Err(HttpError::new(HttpErrorKind::Connect, broken));
                }
                2 => 500,
                3 => 200,
                _ => 404,
            };
            let mut response = HttpResponse::new(HttpResponseBody::from("".to_string()));
            *response.status_mut() = status.try_into().expect("a status");
            let tag = "\"1\"".parse().expect("a tag");
            response.headers_mut().insert("etag", tag);
            Ok(response)
        }
    }

    fn count(text: &str, line: &str) -> u64 {
        let found = text.lines().find_map(|l| l.strip_prefix(line));
        let found = found.and_then(|value| value.trim().parse().ok());
        found.unwrap_or_else(|| panic!("no {line} in {text}"))
    }

    fn told() -> String {
        let mut all = Figures::default();
        figures(&mut all);
        all.text()
    }

    #[tokio::test]
    async fn each_try_counts_and_repeated_ones_are_known() {
        let store = AmazonS3Builder::new()
            .with_bucket_name("lake")
            .with_region("here")
            .with_access_key_id("key")
            .with_secret_access_key("secret")
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: std::time::Duration::from_millis(1),
                    ..BackoffConfig::default()
                },
                ..RetryConfig::default()
            })
            .with_http_connector(Counting(Moody::default()))
            .build()
            .expect("a store");
        let before = told();
        store
            .put(&Path::from("a"), "text".into())
            .await
            .expect("the fourth try");
        assert!(store.head(&Path::from("b")).await.is_err());
        let after = told();
        let requests = |operation: &str, outcome: &str| {
            let line = format!(
                "windrow_store_requests_total{{operation=\"{operation}\",outcome=\"{outcome}\"}}"
            );
            count(&after, &line) - count(&before, &line)
        };
        assert_eq!(
            ["throttled", "unreachable", "error", "ok"].map(|o| requests("put", o)),
            [1, 1, 1, 1]
        );
        assert_eq!(requests("head", "not_found"), 1);
        let retries = |operation: &str| {
            let line = format!("windrow_store_retries_total{{operation=\"{operation}\"}}");
            count(&after, &line) - count(&before, &line)
        };
        assert_eq!((retries("put"), retries("head")), (3, 0));
    }

    #[test]
    fn requests_are_known_by_what_they_ask() {
        for (method, uri, wanted) in [
            ("GET", "/lake/x", "get"),
            ("GET", "/lake?list-type=2&prefix=x", "list"),
            ("HEAD", "/lake/x", "head"),
            ("PUT", "/lake/uploads", "put"),
            ("PUT", "/lake/x?partNumber=1&uploadId=4", "multipart"),
            ("POST", "/lake/x?uploads", "multipart"),
            ("DELETE", "/lake/x?uploadId=4", "multipart"),
            ("POST", "/lake?delete", "delete"),
            ("POST", "/", "other"),
        ] {
            let mut request = HttpRequest::new(object_store::client::HttpRequestBody::empty());
            *request.method_mut() = method.parse().expect("a method");
            *request.uri_mut() = uri.parse().expect("a place");
            assert_eq!(OPERATIONS[operation(&request)], wanted, "{method} {uri}");
        }
    }
}
