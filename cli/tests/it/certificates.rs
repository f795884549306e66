//! Certificates for tests, made by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, words};

/// An authority of a test's own, with certificates and keys that it signed.
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Certificates of these names for processes on this machine, both to serve and to call.
    pub fn new(folder: &Path, names: &[&str]) -> Outcome<Self> {
        std::fs::create_dir_all(folder).map_err(words)?;
        let made = Self {
            folder: folder.to_path_buf(),
        };
        made.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ])?;
        for name in names {
            let (key, request) = (format!("{name}.key"), format!("{name}.csr"));
            let (certificate, more) = (format!("{name}.pem"), format!("{name}.ext"));
            let extensions =
                "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n";
            std::fs::write(folder.join(&more), extensions).map_err(words)?;
            let subject = format!("/CN={name}");
            made.openssl(&[
                "req", "-newkey", "rsa:2048", "-nodes", "-subj", &subject, "-keyout", &key, "-out",
                &request,
            ])?;
            made.openssl(&[
                "x509",
                "-req",
                "-in",
                &request,
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                "2",
                "-extfile",
                &more,
                "-out",
                &certificate,
            ])?;
        }
        Ok(made)
    }

    fn openssl(&self, arguments: &[&str]) -> Outcome {
        let done = Command::new("openssl")
            .args(arguments)
            .current_dir(&self.folder)
            .output()
            .map_err(|e| format!("openssl: {e}"))?;
        if done.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }

    /// `NAME.pem` and `NAME.key`; `ca.pem` is the authority's.
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }
}
