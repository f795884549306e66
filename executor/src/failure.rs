//! Errors of planning and running in words with a stable code, also when they happened in another
//! process.
//!
//! The distributed runtime carries an error as text. [`sent`] puts code and message into it in a
//! form that survives being quoted, [`received`] finds them again.

use std::borrow::Cow;

use ballista_core::error::BallistaError;
use datafusion::common::DataFusionError;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use windrow_delta::TableError;

use crate::spark::WrongCall;
use crate::stage::RuleBroken;

/// An error that happened on an executor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    pub code: String,
    pub message: String,
}

/// A code and a plain message for an error of planning or running.
pub fn words_of(error: &DataFusionError) -> (Cow<'static, str>, String) {
    let root = error.find_root();
    if let DataFusionError::External(inner) = root {
        if let Some(table) = inner.downcast_ref::<TableError>() {
            return (table.code().into(), table.to_string());
        }
        if let Some(broken) = inner.downcast_ref::<RuleBroken>() {
            return (broken.code().into(), broken.to_string());
        }
        if let Some(wrong) = inner.downcast_ref::<WrongCall>() {
            return ("DATATYPE_MISMATCH".into(), wrong.to_string());
        }
        if let Some(remote) = inner.downcast_ref::<RemoteError>() {
            return (remote.code.clone().into(), remote.message.clone());
        }
    }
    let text = root.to_string();
    let plain = root.strip_backtrace();
    let message = if plain.is_empty() { text } else { plain };
    let message = windrow_delta::error::plain(&message);
    let message = crate::spark::plain_message(&message);
    if let Some((code, message)) = named(message) {
        return (code.into(), message.to_string());
    }
    let message = message.to_string();
    let code = match root {
        _ if is_out_of_space(root) => "DISK_FULL",
        DataFusionError::ResourcesExhausted(_) => "MEMORY_EXHAUSTED",
        DataFusionError::ObjectStore(_) => "STORAGE_NOT_REACHABLE",
        DataFusionError::ParquetError(_) => "FILE_NOT_READABLE",
        DataFusionError::Plan(_) | DataFusionError::SchemaError(..) | DataFusionError::SQL(..) => {
            "QUERY_NOT_VALID"
        }
        DataFusionError::NotImplemented(_) => "SYNTAX_NOT_AVAILABLE",
        DataFusionError::Internal(_) => "INTERNAL",
        _ => "QUERY_FAILED",
    };
    (code.into(), message)
}

/// The code that a message of the language begins with, and the rest of it.
fn named(message: &str) -> Option<(&'static str, &str)> {
    const CODES: [&str; 4] = [
        "DATATYPE_MISMATCH",
        "WRONG_NUM_ARGS",
        "NUM_TABLE_VALUE_ALIASES_MISMATCH",
        "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY",
    ];
    let (word, rest) = message.split_once(": ")?;
    let category = word.split('.').next().unwrap_or(word);
    let code = CODES.iter().find(|code| **code == category)?;
    Some((code, rest))
}

/// Whether some disk took no more, under whatever wrappings. Some of them keep only the text.
fn is_out_of_space(error: &DataFusionError) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    // The numbers by which systems tell it: of space, of a quota (Linux, BSD), of a file's size.
    const NUMBERS: [&str; 4] = [
        "(os error 28)",
        "(os error 122)",
        "(os error 69)",
        "(os error 27)",
    ];
    let mut inner: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = inner {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return matches!(io.kind(), FileTooLarge | QuotaExceeded | StorageFull);
        }
        inner = error.source();
    }
    let text = error.to_string();
    NUMBERS.iter().any(|number| text.contains(number))
}

/// Begins what [`sent`] wrote. Letters only, so that no quoting changes it.
const MARK: &str = "WINDROWERROR";

/// `error` in a form whose text holds its code and message. Errors of the runtime itself stay as
/// they are: it must know them again. What a store answered becomes an IO error, after which the
/// runtime tries the task once more.
pub fn sent(error: DataFusionError) -> DataFusionError {
    sent_from("", error)
}

/// As [`sent`], with the place of the process where that is part of the cause.
pub fn sent_from(place: &str, error: DataFusionError) -> DataFusionError {
    let Some(root) = own(&error) else {
        return error;
    };
    let (code, mut message) = words_of(root);
    if code == "DISK_FULL" && !place.is_empty() {
        message = format!("{place} is out of space: {message}");
    }
    let quoted = utf8_percent_encode(&message, NON_ALPHANUMERIC);
    let text = format!("{MARK} {code} {quoted} {MARK}");
    match root {
        DataFusionError::ObjectStore(_) | DataFusionError::IoError(_) => {
            DataFusionError::IoError(std::io::Error::other(text))
        }
        _ => DataFusionError::Execution(text),
    }
}

/// What lies at the bottom of an error, under the wrappings of the runtime; `None` for an error of the
/// runtime's own.
fn own(error: &DataFusionError) -> Option<&DataFusionError> {
    let root = error.find_root();
    let DataFusionError::External(inner) = root else {
        return Some(root);
    };
    match inner.downcast_ref::<BallistaError>() {
        None => Some(root),
        Some(BallistaError::DataFusionError(inner)) => own(inner),
        Some(_) => None,
    }
}

/// The error that [`sent`] put into `text`.
pub fn received(text: &str) -> Option<RemoteError> {
    let (_, rest) = text.split_once(MARK)?;
    let (inside, _) = rest.split_once(MARK)?;
    let mut words = inside.split_whitespace();
    let code = words.next()?.to_string();
    let message = percent_decode_str(words.next().unwrap_or_default())
        .decode_utf8_lossy()
        .into_owned();
    Some(RemoteError { code, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::RuleKind;

    #[test]
    fn a_broken_rule_keeps_its_code_and_words_through_the_text_of_an_error() {
        let broken = DataFusionError::External(Box::new(RuleBroken {
            kind: RuleKind::NotNull,
            name: "a \"b\"".into(),
            row: "x='é', y=\\n %41 NULL".into(),
        }));
        let wanted = words_of(&broken);
        let wrapped =
            DataFusionError::External(Box::new(BallistaError::DataFusionError(Box::new(broken))));
        let text = format!("Job failed: {:?}", sent(wrapped));
        let got = received(&text).unwrap();
        assert_eq!((got.code.as_str(), &got.message), (&*wanted.0, &wanted.1));
        let again = DataFusionError::External(Box::new(got));
        assert_eq!(words_of(&again), wanted);
    }

    #[test]
    fn a_full_disk_is_known_under_its_wrappings_and_told_with_its_place() {
        use std::io::{Error, ErrorKind};
        let full = || Error::from(ErrorKind::StorageFull);
        let arrow = datafusion::arrow::error::ArrowError::IoError("spill".into(), full());
        for error in [
            DataFusionError::IoError(full()),
            DataFusionError::ArrowError(Box::new(arrow), None),
            DataFusionError::Execution("write: No space left on device (os error 28)".into()),
        ] {
            let got = received(&sent_from("executor a:1", error).to_string()).unwrap();
            assert_eq!(got.code, "DISK_FULL");
            assert!(
                got.message.starts_with("executor a:1 is out of space"),
                "{got}"
            );
        }
        let other = DataFusionError::IoError(Error::from(ErrorKind::NotFound));
        assert_eq!(words_of(&other).0, "QUERY_FAILED");
    }

    #[test]
    fn what_a_store_answered_is_tried_again_and_other_errors_are_not() {
        let answered = DataFusionError::ObjectStore(Box::new(object_store::Error::Generic {
            store: "S3",
            source: "SlowDown".into(),
        }));
        assert!(matches!(sent(answered), DataFusionError::IoError(_)));
        let wrong = DataFusionError::Execution("division by zero".into());
        assert!(matches!(sent(wrong), DataFusionError::Execution(_)));
        let fetch = BallistaError::FetchFailed("e".into(), 1, 2, "gone".into());
        let kept = sent(DataFusionError::External(Box::new(fetch)));
        assert!(own(&kept).is_none(), "{kept:?}");
        assert_eq!(received("no mark here"), None);
    }
}
