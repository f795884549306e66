//! Who may talk to the scheduler: those who know its token.
//!
//! One token for people, services and executors. Whether the process lives, and gRPC's own health
//! service, are told to everybody, since what asks for them holds no secrets.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tonic::Code;
use windrow_proto::status::status;

use super::metrics::Metrics;

/// Bytes of the longest token.
const LONGEST: usize = 512;

/// A bearer token. Never shown.
#[derive(Clone)]
pub struct Token {
    /// Filled up with zeros, so that comparing takes the same time whatever it is compared with.
    padded: Box<[u8; LONGEST]>,
    length: usize,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// White space around it does not count. `None` for a token that is empty, too long, or has
    /// characters that no header takes.
    pub fn new(text: &str) -> Option<Self> {
        let bytes = text.trim().as_bytes();
        let is_plain = bytes.iter().all(|b| (0x21..=0x7e).contains(b));
        (!bytes.is_empty() && is_plain)
            .then(|| Self::padded(bytes))
            .flatten()
    }

    fn padded(bytes: &[u8]) -> Option<Self> {
        let mut padded = Box::new([0; LONGEST]);
        padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self {
            padded,
            length: bytes.len(),
        })
    }

    /// Looks at every byte, so that how long it takes tells nothing.
    fn is(&self, other: &Self) -> bool {
        let pairs = self.padded.iter().zip(other.padded.iter());
        let difference = pairs.fold(0u8, |all, (a, b)| {
            std::hint::black_box(all | std::hint::black_box(a ^ b))
        });
        (difference == 0) & (self.length == other.length)
    }

    fn is_header(&self, header: &[u8]) -> bool {
        let Some((scheme, rest)) = header.split_at_checked("Bearer ".len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"Bearer ")
            && Self::padded(rest).is_some_and(|given| self.is(&given))
    }
}

/// What the check needs.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    pub(crate) token: Option<Token>,
    pub(crate) metrics: Arc<Metrics>,
}

fn is_open(path: &str) -> bool {
    matches!(path, "/health/live" | "/health/ready") || path.starts_with("/grpc.health.v1.Health/")
}

pub(crate) async fn check(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let Some(token) = &gate.token else {
        return next.run(request).await;
    };
    let given = request.headers().get(header::AUTHORIZATION);
    let knows = given.is_some_and(|given| token.is_header(given.as_bytes()));
    if knows || is_open(request.uri().path()) {
        return next.run(request).await;
    }
    gate.metrics.refused();
    let message = "the request has no token, or not that of this scheduler";
    if is_grpc(&request) {
        let help = "set WINDROW_TOKEN or WINDROW_TOKEN_FILE".to_string();
        let help = [(windrow_proto::status::HELP.to_string(), help)];
        return status(Code::Unauthenticated, "UNAUTHENTICATED", message, help).into_http();
    }
    let mut response = (StatusCode::UNAUTHORIZED, message).into_response();
    let scheme = header::HeaderValue::from_static("Bearer");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, scheme);
    response
}

pub(crate) fn is_grpc(request: &Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_is_right() {
        let token = Token::new(" sesame\n").expect("a token");
        assert!(token.is_header(b"Bearer sesame"));
        assert!(token.is_header(b"bearer sesame"));
        for wrong in [
            &b"Bearer sesam"[..],
            b"Bearer sesame1",
            b"Bearer sesame\0",
            b"Bearer Sesame",
            b"Bearer ",
            b"Basic sesame",
            b"sesame",
            b"",
        ] {
            assert!(!token.is_header(wrong), "{}", wrong.escape_ascii());
        }
        assert!(!token.is_header(&[b"Bearer ".as_slice(), &[b'x'; 600]].concat()));
        assert!(!format!("{token:?}").contains("sesame"));
    }

    #[test]
    fn a_token_that_no_header_takes_is_none() {
        for text in ["", "  \n", "a b", "ü"] {
            assert!(Token::new(text).is_none(), "{text}");
        }
        assert!(Token::new(&"x".repeat(513)).is_none());
    }

    #[test]
    fn only_health_is_open() {
        assert!(is_open("/health/live"));
        assert!(is_open("/grpc.health.v1.Health/Check"));
        for path in [
            "/metrics",
            "/health/live/x",
            "/windrow.v1.PipelineService/ListPipelines",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        ] {
            assert!(!is_open(path), "{path}");
        }
    }
}
