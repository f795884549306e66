//! Who is let in, and where to: tokens, certificates, addresses, and the places of pipelines.

use std::collections::HashMap;

use tokio::net::{TcpListener, TcpStream};

use super::Scheduler;
use crate::certificates::Certificates;
use crate::crash::{NOW, play, prepared, twin};
use crate::pipeline::Pipeline;
use crate::program::{self, Ended};
use crate::{Outcome, words};

const TOKEN: &str = "sesame-4711";

async fn through(
    pipeline: &Pipeline,
    command: &str,
    url: &str,
    variables: &[(&str, &str)],
) -> Outcome<Ended> {
    let mut all = vec![("WINDROW_SCHEDULER", url)];
    all.extend(variables);
    program::end(pipeline.start(command, &NOW, &all)?).await
}

fn refused_with(ended: Ended, code: &str) -> Outcome {
    // Who is not there may come yet; who does not know the token will not.
    let exit = if code == "SCHEDULER_NOT_REACHABLE" {
        1
    } else {
        2
    };
    let ended = ended.expect_exit(exit)?;
    if ended.report()?["error"]["code"] == code {
        return Ok(());
    }
    Err(format!("not {code}: {}", ended.told()))
}

#[test]
fn only_those_who_know_the_token() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let pipeline = prepared(&scratch.path().join("lake"), 2).await?;
        let file = scratch.path().join("token");
        std::fs::write(&file, format!("{TOKEN}\n")).map_err(words)?;
        let file = file.to_string_lossy().into_owned();
        let scheduler = Scheduler::start(scratch.path(), &["--token-file", &file], &[]).await?;
        let url = scheduler.url();
        for variables in [
            &[][..],
            &[("WINDROW_TOKEN", "sesame-4712")],
            &[("WINDROW_TOKEN", "")],
        ] {
            let ended = through(&pipeline, "validate", &url, variables).await?;
            if ended.told().contains(TOKEN) {
                return Err(format!("the token is told: {}", ended.told()));
            }
            refused_with(ended, "UNAUTHENTICATED")?;
        }
        for variables in [
            [("WINDROW_TOKEN", TOKEN)],
            [("WINDROW_TOKEN_FILE", file.as_str())],
        ] {
            let ended = through(&pipeline, "run", &url, &variables).await?;
            ended.expect_exit(0)?;
        }
        let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
        for (path, headers, status) in [
            ("/health/live", "", 200),
            ("/health/ready", "", 200),
            ("/metrics", "", 401),
            ("/metrics", "Authorization: Bearer x\r\n", 401),
            ("/metrics", bearer.as_str(), 200),
            ("/nosuch", "", 401),
            ("/nosuch", bearer.as_str(), 404),
        ] {
            let (got, body) = scheduler.get(path, headers).await?;
            if got != status {
                return Err(format!("{path} {headers}: {got} {body}"));
            }
        }
        let (_, figures) = scheduler.get("/metrics", &bearer).await?;
        if figures.contains("windrow_requests_refused_total 0") {
            return Err(figures);
        }
        let help = program::start(
            scratch.path(),
            &["scheduler", "--help"],
            &HashMap::from([("WINDROW_TOKEN".to_string(), TOKEN.to_string())]),
        )?;
        let help = program::end(help).await?;
        if help.stdout.contains(TOKEN) || !help.stdout.contains("--token-file") {
            return Err(help.told());
        }
        // A token that is meant and missing does not open the door.
        let empty = Scheduler::start(scratch.path(), &[], &[("WINDROW_TOKEN", " ")]).await;
        match empty {
            Err(said) if said.contains("TOKEN_NOT_USABLE") => Ok(()),
            Err(said) => Err(said),
            Ok(_) => Err("it is open to everybody".into()),
        }
    });
}

#[test]
fn others_reach_it_only_secured() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let refused = Scheduler::start(scratch.path(), &["--bind", "0.0.0.0:0"], &[]).await;
        match refused {
            Err(said) if said.contains("REMOTE_NOT_SECURED") => {}
            Err(said) => return Err(said),
            Ok(_) => return Err("it listens to everybody".into()),
        }
        let in_words = ["--bind", "0.0.0.0:0", "--insecure-remote"];
        let open = Scheduler::start(scratch.path(), &in_words, &[]).await?;
        if open.address.starts_with("127.") {
            return Err(open.address.clone());
        }
        Ok(())
    });
}

#[test]
fn certificates_on_both_sides() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let pipeline = prepared(&scratch.path().join("lake"), 2).await?;
        let ours = Certificates::new(&scratch.path().join("ours"), &["server", "client"])?;
        let others = Certificates::new(&scratch.path().join("others"), &["server", "client"])?;
        let (certificate, key) = (ours.path("server.pem"), ours.path("server.key"));
        let ca = ours.path("ca.pem");
        let tls = ["--tls-cert", &certificate, "--tls-key", &key];
        let one_way = Scheduler::start(scratch.path(), &tls, &[]).await?;
        let address = one_way.address.clone();
        let https = format!("https://{address}");
        let trusting = [("WINDROW_TLS_CA", ca.as_str())];
        through(&pipeline, "run", &https, &trusting)
            .await?
            .expect_exit(0)?;
        let other_ca = others.path("ca.pem");
        let wrong = [("WINDROW_TLS_CA", other_ca.as_str())];
        let code = "SCHEDULER_NOT_REACHABLE";
        refused_with(through(&pipeline, "validate", &https, &wrong).await?, code)?;
        let plain = format!("http://{address}");
        let ended = through(&pipeline, "validate", &plain, &[]).await?;
        if ended.exit == Some(0) {
            return Err("it answers without TLS".into());
        }
        drop(one_way);

        let both_ways = [
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
            "--tls-client-ca",
            &ca,
        ];
        let both_ways = Scheduler::start(scratch.path(), &both_ways, &[]).await?;
        let https = format!("https://{}", both_ways.address);
        let unknown = through(&pipeline, "validate", &https, &trusting).await?;
        if unknown.exit == Some(0) {
            return Err("it answers without a certificate".into());
        }
        for (whose, is_let_in) in [(&ours, true), (&others, false)] {
            let (certificate, key) = (whose.path("client.pem"), whose.path("client.key"));
            let variables = [
                ("WINDROW_TLS_CA", ca.as_str()),
                ("WINDROW_TLS_CERT", certificate.as_str()),
                ("WINDROW_TLS_KEY", key.as_str()),
            ];
            let ended = through(&pipeline, "validate", &https, &variables).await?;
            if (ended.exit == Some(0)) != is_let_in {
                return Err(ended.told());
            }
        }
        Ok(())
    });
}

/// A client that is dropped while it comes in, as by a scheduler that just begins to lead, comes again.
#[test]
fn who_is_dropped_at_the_door_comes_again() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let pipeline = prepared(&scratch.path().join("lake"), 2).await?;
        let ours = Certificates::new(&scratch.path().join("ours"), &["server"])?;
        let (certificate, key) = (ours.path("server.pem"), ours.path("server.key"));
        let tls = ["--tls-cert", &certificate, "--tls-key", &key];
        let scheduler = Scheduler::start(scratch.path(), &tls, &[]).await?;
        let door = TcpListener::bind("127.0.0.1:0").await.map_err(words)?;
        let url = format!("https://{}", door.local_addr().map_err(words)?);
        let address = scheduler.address.clone();
        let passing = tokio::spawn(async move {
            let mut dropped = 0;
            while let Ok((mut client, _)) = door.accept().await {
                if dropped < 2 {
                    dropped += 1;
                    continue;
                }
                let Ok(mut server) = TcpStream::connect(&address).await else {
                    return;
                };
                tokio::spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        let ca = ours.path("ca.pem");
        let ended = through(&pipeline, "run", &url, &[("WINDROW_TLS_CA", ca.as_str())]).await;
        passing.abort();
        ended?.expect_exit(0).map(|_| ())
    });
}

#[test]
fn places_outside_are_refused() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let inside = scratch.path().join("inside");
        let outside = scratch.path().join("outside");
        let allowed = prepared(&inside.join("p"), 2).await?;
        let elsewhere = twin(&allowed, &outside.join("p"))?;
        let scheduler = Scheduler::start(&inside, &[], &[]).await?;
        scheduler
            .call(&allowed, "run", &NOW)
            .await?
            .expect_exit(0)?;
        for command in ["validate", "plan", "run", "events", "updates"] {
            let ended = scheduler.call(&elsewhere, command, &[]).await?;
            refused_with(ended, "PATH_NOT_ALLOWED").map_err(|e| format!("{command}: {e}"))?;
        }
        // What the pipeline's own words allow does not count beyond that.
        let mut wide = twin(&allowed, &inside.join("wide"))?;
        wide.keys = format!("allowed_paths: [\"{}\"]\n", outside.display());
        refused_with(
            scheduler.call(&wide, "run", &NOW).await?,
            "PATH_NOT_ALLOWED",
        )?;
        // Nor does what a query names: a file, a way out by dots, a link.
        std::os::unix::fs::symlink(&outside, inside.join("link")).map_err(words)?;
        std::fs::write(outside.join("x.json"), "{\"d\": \"2026-03-09\"}\n").map_err(words)?;
        let dir = inside.display();
        for path in [
            outside.join("x.json").display().to_string(),
            format!("{dir}/../outside/x.json"),
            format!("file://{dir}/%2e%2e/outside/x.json"),
            format!("file://{dir}/p%2f..%2f..%2foutside/x.json"),
            format!("{dir}/link/x.json"),
        ] {
            let sql = format!(
                "CREATE MATERIALIZED VIEW v AS SELECT * FROM read_files('{path}', format => 'json');"
            );
            let mut reading = twin(&allowed, &inside.join("reading"))?.sql(&sql);
            reading.keys = format!("allowed_paths: [\"{dir}\"]\n");
            let ended = scheduler
                .call(&reading, "run", &NOW)
                .await?
                .expect_exit(2)?;
            if !ended.told().contains("PATH_NOT_ALLOWED") {
                return Err(format!("{path}: {}", ended.told()));
            }
        }
        // Whom the scheduler asks is its own affair.
        let mut asking = twin(&allowed, &inside.join("asking"))?;
        asking.keys = "object_store: {aws_endpoint: \"http://127.0.0.1:1\"}\n".into();
        refused_with(
            scheduler.call(&asking, "run", &NOW).await?,
            "OPTION_NOT_ALLOWED",
        )
    });
}
