//! The details of a gRPC status: which stable code word it carries.
//!
//! They have the form that gRPC clients of all languages read: a `google.rpc.Status` that holds one
//! `google.rpc.ErrorInfo`. Both messages are small and never change, so they stand here.

use prost::Message;

/// Who gives the code words their meaning.
pub const DOMAIN: &str = "windrow";
/// The help of an error, among the metadata of its [`ErrorInfo`].
pub const HELP: &str = "help";

const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
/// A status travels in a header, and peers take no long ones.
const LONGEST: usize = 1500;

#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Message)]
pub struct ErrorInfo {
    /// The code word.
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(string, tag = "2")]
    pub domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub metadata: std::collections::BTreeMap<String, String>,
}

/// A status with a code word, and with help where there is some.
pub fn status(
    code: tonic::Code,
    reason: &str,
    message: &str,
    metadata: impl IntoIterator<Item = (String, String)>,
) -> tonic::Status {
    let message = shortened(message);
    let info = ErrorInfo {
        reason: reason.to_string(),
        domain: DOMAIN.to_string(),
        metadata: metadata
            .into_iter()
            .map(|(key, value)| (key, shortened(&value)))
            .collect(),
    };
    let details = Details {
        code: code as i32,
        message: message.clone(),
        details: vec![prost_types::Any {
            type_url: ERROR_INFO.to_string(),
            value: info.encode_to_vec(),
        }],
    };
    tonic::Status::with_details(code, message, details.encode_to_vec().into())
}

/// The code word that a status carries, if it is one of ours.
pub fn error_info(status: &tonic::Status) -> Option<ErrorInfo> {
    let details = Details::decode(status.details()).ok()?;
    details
        .details
        .iter()
        .filter(|any| any.type_url == ERROR_INFO)
        .filter_map(|any| ErrorInfo::decode(any.value.as_slice()).ok())
        .find(|info| info.domain == DOMAIN)
}

fn shortened(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_string();
    }
    let end = (0..=LONGEST)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    format!("{} ...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_word_survives_the_way() {
        let help = (HELP.to_string(), "do it later".to_string());
        let sent = status(tonic::Code::NotFound, "UPDATE_NOT_FOUND", "no ü", [help]);
        let headers = sent.into_http::<()>().into_parts().0.headers;
        let got = tonic::Status::from_header_map(&headers).expect("a status");
        let info = error_info(&got).expect("details");
        assert_eq!(got.message(), "no ü");
        assert_eq!(info.reason, "UPDATE_NOT_FOUND");
        assert_eq!(
            info.metadata.get(HELP).map(String::as_str),
            Some("do it later")
        );
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let sent = status(tonic::Code::Internal, "X", &"ü".repeat(5000), []);
        assert!(sent.message().len() < LONGEST + 8);
        assert!(error_info(&sent).is_some());
    }

    #[test]
    fn details_of_others_are_passed_over() {
        let other = tonic::Status::with_details(tonic::Code::Internal, "x", vec![1, 2, 3].into());
        assert_eq!(error_info(&other), None);
    }
}
