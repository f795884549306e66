//! Stores of S3, and of what speaks its language, opened so that their requests are counted.
//!
//! deltalake's own way to open them leaves no room for that. Settings mean what they mean there: every
//! `AWS_*` variable counts unless a setting of the same meaning is given; without an endpoint the store is
//! Amazon's, and credentials are then sought as its own tools seek them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::sts::AssumeRoleProvider;
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use deltalake::logstore::{
    ObjectStoreFactory, ObjectStoreRef, StorageConfig, client_options_from_certificate,
    object_store_factories,
};
use deltalake::{DeltaResult, DeltaTableError};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::path::Path;
use object_store::{CredentialProvider, ObjectStoreScheme};
use tokio::sync::{Mutex, OnceCell};
use url::Url;

use crate::traffic::Counting;

/// Asks for Amazon's way to credentials although an endpoint is given.
const FORCE: &str = "aws_force_credential_load";
const ROLE: [&str; 2] = ["aws_iam_role_arn", "aws_s3_assume_role_arn"];
const SESSION: [&str; 2] = ["aws_iam_role_session_name", "aws_s3_role_session_name"];
/// Credentials that end within this are asked for anew.
const MARGIN: Duration = Duration::from_secs(60);

/// Takes over from deltalake's own way to open such stores.
pub(crate) fn register() {
    let factory = Arc::new(Factory);
    for scheme in ["s3://", "s3a://"] {
        if let Ok(url) = Url::parse(scheme) {
            object_store_factories().insert(url, factory.clone());
        }
    }
}

#[derive(Debug)]
struct Factory;

impl ObjectStoreFactory for Factory {
    fn parse_url_opts(
        &self,
        url: &Url,
        config: &StorageConfig,
    ) -> DeltaResult<(ObjectStoreRef, Path)> {
        let settings = settings(&config.raw, &crate::store::environment());
        let mut builder = AmazonS3Builder::new()
            .with_url(url.as_str())
            .with_retry(config.retry.clone())
            .with_http_connector(Counting::default());
        let certificate = config.certificate.as_ref();
        if let Some(path) = certificate.and_then(|c| c.certificate_path.as_ref()) {
            builder = builder.with_client_options(client_options_from_certificate(path)?);
        }
        for (key, value) in &settings {
            if let Ok(key) = key.parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        if is_amazons(&settings) {
            builder = builder.with_credentials(Arc::new(Found::new(settings)));
        }
        let (_, path) =
            ObjectStoreScheme::parse(url).map_err(|e| DeltaTableError::GenericError {
                source: Box::new(e),
            })?;
        Ok((Arc::new(builder.build()?), Path::parse(path)?))
    }
}

/// The settings under the one name that the store's client has for each, and the environment's below
/// them.
fn settings(
    given: &HashMap<String, String>,
    environment: &std::collections::BTreeMap<String, String>,
) -> HashMap<String, String> {
    let named = |key: &str| {
        let key = key.to_ascii_lowercase();
        match key.parse::<AmazonS3ConfigKey>() {
            Ok(known) => known.as_ref().to_string(),
            Err(_) => key,
        }
    };
    let mut settings: HashMap<String, String> = environment
        .iter()
        .map(|(key, value)| (named(key), value.clone()))
        .collect();
    settings.extend(given.iter().map(|(key, value)| (named(key), value.clone())));
    let copy = AmazonS3ConfigKey::CopyIfNotExists.as_ref().to_string();
    settings.entry(copy).or_insert_with(|| "multipart".into());
    settings
}

fn is_amazons(settings: &HashMap<String, String>) -> bool {
    settings.contains_key(FORCE) || !settings.contains_key(AmazonS3ConfigKey::Endpoint.as_ref())
}

fn first<'a>(settings: &'a HashMap<String, String>, names: &[&str]) -> Option<&'a String> {
    names.iter().find_map(|name| settings.get(*name))
}

/// Credentials as Amazon's tools find them, kept until they end.
#[derive(Debug)]
struct Found {
    settings: Settings,
    /// Made when the first ones are asked for.
    provider: OnceCell<SharedCredentialsProvider>,
    kept: Mutex<Option<Credentials>>,
}

/// Shown by its keys only.
struct Settings(HashMap<String, String>);

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Found {
    fn new(settings: HashMap<String, String>) -> Self {
        Self {
            settings: Settings(settings),
            provider: OnceCell::new(),
            kept: Mutex::new(None),
        }
    }
}

/// A role that was named, else keys that were given, else what the machine has.
async fn provider(settings: &HashMap<String, String>) -> SharedCredentialsProvider {
    if let Some(role) = first(settings, &ROLE) {
        let session = match first(settings, &SESSION) {
            Some(name) => name.clone(),
            None => format!("windrow-{}", uuid::Uuid::new_v4().simple()),
        };
        let role = AssumeRoleProvider::builder(role).session_name(session);
        return SharedCredentialsProvider::new(role.build().await);
    }
    let setting = |key: AmazonS3ConfigKey| settings.get(key.as_ref());
    if let (Some(key), Some(secret)) = (
        setting(AmazonS3ConfigKey::AccessKeyId),
        setting(AmazonS3ConfigKey::SecretAccessKey),
    ) {
        let token = setting(AmazonS3ConfigKey::Token).cloned();
        return SharedCredentialsProvider::new(Credentials::new(
            key, secret, token, None, "settings",
        ));
    }
    SharedCredentialsProvider::new(DefaultCredentialsChain::builder().build().await)
}

fn lasts(credentials: &Credentials) -> bool {
    let end = credentials.expiry();
    end.is_none_or(|end| end > SystemTime::now() + MARGIN)
}

#[async_trait]
impl CredentialProvider for Found {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        // Held while they are sought, so that one search serves all who wait.
        let mut kept = self.kept.lock().await;
        let credentials = match kept.take().filter(lasts) {
            Some(credentials) => credentials,
            None => {
                let provider = self
                    .provider
                    .get_or_init(|| provider(&self.settings.0))
                    .await;
                let found = provider.provide_credentials().await;
                found.map_err(|e| object_store::Error::Unauthenticated {
                    path: String::new(),
                    source: Box::new(e),
                })?
            }
        };
        let shown = AwsCredential {
            key_id: credentials.access_key_id().into(),
            secret_key: credentials.secret_access_key().into(),
            token: credentials.session_token().map(str::to_string),
        };
        *kept = Some(credentials);
        Ok(Arc::new(shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map<T: FromIterator<(String, String)>>(pairs: &[(&str, &str)]) -> T {
        let pairs = pairs.iter();
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn settings_go_before_the_environment_whatever_they_are_called() {
        let found = settings(
            &map(&[("AWS_ENDPOINT_URL", "http://one"), ("aws_region", "one")]),
            &map(&[("aws_endpoint", "http://two"), ("aws_access_key_id", "two")]),
        );
        for (key, value) in [
            ("aws_endpoint", "http://one"),
            ("aws_region", "one"),
            ("aws_access_key_id", "two"),
            ("aws_copy_if_not_exists", "multipart"),
        ] {
            assert_eq!(found.get(key).map(String::as_str), Some(value), "{key}");
        }
        assert!(!is_amazons(&found));
        assert!(is_amazons(&settings(
            &map(&[("aws_region", "x")]),
            &map(&[])
        )));
        let forced = map(&[("AWS_FORCE_CREDENTIAL_LOAD", "true"), ("endpoint", "x")]);
        assert!(is_amazons(&settings(&forced, &map(&[]))));
    }

    #[tokio::test]
    async fn keys_that_are_given_are_taken() {
        let given = map(&[
            ("aws_access_key_id", "key"),
            ("aws_secret_access_key", "secret"),
            ("aws_session_token", "token"),
        ]);
        let found = Found::new(settings(&given, &map(&[])));
        for _ in 0..2 {
            let credential = found.get_credential().await.expect("credentials");
            assert_eq!(
                (&*credential.key_id, &*credential.secret_key),
                ("key", "secret")
            );
            assert_eq!(credential.token.as_deref(), Some("token"));
        }
        assert!(!format!("{found:?}").contains("secret\""));
    }

    #[test]
    fn what_ends_soon_is_asked_for_anew() {
        let ends = |seconds| {
            let end = SystemTime::now() + Duration::from_secs(seconds);
            Credentials::new("k", "s", None, Some(end), "test")
        };
        assert!(lasts(&ends(3600)));
        assert!(!lasts(&ends(5)));
        assert!(lasts(&Credentials::new("k", "s", None, None, "test")));
    }
}
