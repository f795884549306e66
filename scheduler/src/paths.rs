//! Where a scheduler lets the pipelines of its clients go.
//!
//! A client names places by URL, and the scheduler opens them with credentials of its own. A place is
//! permitted below one of a few roots. What it is compared by is what the object store will make of
//! it: the decoded path, and for a local folder the real one, behind all links. A path that can be
//! read in two ways is refused.

use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use url::Url;
use windrow_flows::fault::Fault;

/// The roots below which clients may read and write.
#[derive(Debug, Clone)]
pub struct PathGuard {
    roots: Vec<Place>,
}

/// A folder as its store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Local(PathBuf),
    Remote {
        scheme: String,
        /// Bucket, with the account where the store has one.
        authority: String,
        segments: Vec<String>,
    },
}

impl PathGuard {
    /// # Errors
    /// `LOCATION_NOT_USABLE` for a root that is no place of its own.
    pub fn new(roots: &[Url]) -> Result<Self, Fault> {
        let roots = roots.iter().map(|root| {
            Place::of(root).ok_or_else(|| {
                Fault::new(
                    "LOCATION_NOT_USABLE",
                    format!("`{root}` can't be allowed: it is no plain folder"),
                )
            })
        });
        Ok(Self {
            roots: roots.collect::<Result<_, _>>()?,
        })
    }

    /// Whether a client may read or write at `url`.
    pub fn permits(&self, url: &Url) -> bool {
        Place::of(url).is_some_and(|place| self.roots.iter().any(|root| place.is_below(root)))
    }
}

impl Place {
    /// `None` for what is no plain path: with parts that lead elsewhere once they are decoded, a query,
    /// a password, or on no store at all.
    fn of(url: &Url) -> Option<Self> {
        if url.query().is_some() || url.fragment().is_some() || url.password().is_some() {
            return None;
        }
        let segments = url
            .path()
            .trim_start_matches('/')
            .trim_end_matches('/')
            .split('/')
            .map(segment)
            .collect::<Option<Vec<String>>>()
            .or_else(|| url.path().trim_matches('/').is_empty().then(Vec::new))?;
        if url.scheme() == "file" {
            if url.host_str().is_some_and(|host| host != "localhost") {
                return None;
            }
            let mut path = PathBuf::from("/");
            path.extend(&segments);
            return Some(Self::Local(real(&path)?));
        }
        let scheme = match url.scheme() {
            "s3" | "s3a" => "s3",
            "abfs" | "abfss" => "abfss",
            scheme @ ("gs" | "az") => scheme,
            _ => return None,
        };
        let host = url.host_str()?;
        if host.is_empty() {
            return None;
        }
        Some(Self::Remote {
            scheme: scheme.to_string(),
            authority: format!("{}@{host}:{:?}", url.username(), url.port()),
            segments,
        })
    }

    fn is_below(&self, root: &Self) -> bool {
        match (self, root) {
            (Self::Local(path), Self::Local(root)) => path.starts_with(root),
            (
                Self::Remote {
                    scheme,
                    authority,
                    segments,
                },
                Self::Remote {
                    scheme: root_scheme,
                    authority: root_authority,
                    segments: root_segments,
                },
            ) => {
                scheme == root_scheme
                    && authority == root_authority
                    && segments.starts_with(root_segments)
            }
            _ => false,
        }
    }
}

/// A part of a path, decoded; `None` when it is more or less than one part.
fn segment(encoded: &str) -> Option<String> {
    let text = percent_decode_str(encoded).decode_utf8().ok()?;
    // Decoded twice, by a store that is too eager, it must not become another part either.
    let again = percent_decode_str(&text).decode_utf8().ok()?;
    let plain = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && !part.contains(['/', '\\'])
            && !part.contains(char::is_control)
    };
    (plain(&text) && plain(&again)).then(|| text.into_owned())
}

/// The path behind all links. What does not exist yet stays as it is written, below what does.
fn real(path: &Path) -> Option<PathBuf> {
    let mut there = path;
    let mut rest = Vec::new();
    loop {
        match std::fs::canonicalize(there) {
            Ok(mut found) => {
                found.extend(rest.iter().rev());
                return Some(found);
            }
            // A link to nowhere is there all the same, and somebody may yet make its end.
            Err(_) if std::fs::symlink_metadata(there).is_ok() => return None,
            Err(_) => {
                rest.push(there.file_name()?.to_os_string());
                there = there.parent()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(roots: &[&str]) -> PathGuard {
        let roots: Vec<Url> = roots
            .iter()
            .map(|r| Url::parse(r).expect("a URL"))
            .collect();
        PathGuard::new(&roots).expect("roots")
    }

    fn permits(guard: &PathGuard, url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| guard.permits(&url))
    }

    #[test]
    fn below_a_root_of_a_bucket_and_nowhere_else() {
        let guard = guard(&["s3://lake/a/b/"]);
        for url in [
            "s3://lake/a/b",
            "s3://lake/a/b/c/",
            "s3a://lake/a/b/c d",
            "s3://lake/a/%62/c",
        ] {
            assert!(permits(&guard, url), "{url}");
        }
        for url in [
            "s3://lake/a/",
            "s3://lake/a/bc/",
            "s3://lake/a/b/../c/",
            "s3://lake/a/b/%2e%2e/c/",
            "s3://lake/a/b/x%2f..%2f..%2fc/",
            "s3://lake/a/b/%252e%252e/c/",
            "s3://lake/a/b//c/",
            "s3://lake/a/b/x%00/",
            "s3://lake/a/b/?versionId=1",
            "s3://other/a/b/",
            "s3://key:secret@lake/a/b/",
            "s3://me@lake/a/b/",
            "gs://lake/a/b/",
            "https://lake/a/b/",
            "memory:///a/b/",
            "file:///a/b/",
        ] {
            assert!(!permits(&guard, url), "{url}");
        }
    }

    #[test]
    fn a_whole_bucket_may_be_a_root() {
        let guard = guard(&["s3://lake/"]);
        assert!(permits(&guard, "s3://lake/a/b/"));
        assert!(permits(&guard, "s3://lake"));
        assert!(!permits(&guard, "s3://lake2/a/"));
    }

    #[test]
    fn accounts_are_part_of_the_place() {
        let guard = guard(&["abfss://files@one.dfs.core.windows.net/a/"]);
        assert!(permits(
            &guard,
            "abfs://files@one.dfs.core.windows.net/a/b/"
        ));
        assert!(!permits(
            &guard,
            "abfss://files@two.dfs.core.windows.net/a/b/"
        ));
        assert!(!permits(
            &guard,
            "abfss://other@one.dfs.core.windows.net/a/b/"
        ));
    }

    #[test]
    fn links_of_local_folders_are_followed() {
        let scratch = std::env::temp_dir().join(format!("windrow-paths-{}", uuid::Uuid::new_v4()));
        let inside = scratch.join("inside");
        let outside = scratch.join("outside");
        std::fs::create_dir_all(&inside).expect("a folder");
        std::fs::create_dir_all(&outside).expect("a folder");
        std::os::unix::fs::symlink(&outside, inside.join("out")).expect("a link");
        std::os::unix::fs::symlink(&inside, scratch.join("in")).expect("a link");
        std::os::unix::fs::symlink(scratch.join("nowhere"), inside.join("loose")).expect("a link");
        let url = |path: &Path| Url::from_directory_path(path).expect("a URL");
        let guard = PathGuard::new(&[url(&inside)]).expect("roots");
        assert!(guard.permits(&url(&inside)));
        assert!(guard.permits(&url(&inside.join("new/deep"))));
        assert!(guard.permits(&url(&scratch.join("in/new"))));
        assert!(!guard.permits(&url(&inside.join("out"))));
        assert!(!guard.permits(&url(&inside.join("out/new"))));
        assert!(!guard.permits(&url(&inside.join("loose/new"))));
        assert!(!guard.permits(&url(&scratch)));
        assert!(!guard.permits(&url(&scratch.join("inside2"))));
        std::fs::remove_dir_all(&scratch).expect("removed");
    }
}
