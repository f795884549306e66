//! Mutual TLS between all processes of a cluster: who has no certificate of the authority computes
//! nothing and fetches nothing.

use std::path::PathBuf;

use tonic::Code;
use windrow_executor::link::{Link, TlsFiles};
use windrow_proto::v1::AttendRequest;
use windrow_proto::v1::executor_service_client::ExecutorServiceClient;
use windrow_scheduler::service::server::choose_cryptography;

use super::{Executor, Machines, SUCCEEDED, free_address, until};
use crate::certificates::Certificates;
use crate::crash::{NOW, play};
use crate::program::{self, Ended};
use crate::{Outcome, words};

/// The options of an executor that trusts `ca` and shows the certificate of `whose`.
fn shown(ca: &Certificates, whose: &Certificates) -> Vec<String> {
    vec![
        "--tls-ca".into(),
        ca.path("ca.pem"),
        "--tls-cert".into(),
        whose.path("executor.pem"),
        "--tls-key".into(),
        whose.path("executor.key"),
    ]
}

/// How a call with the certificate of `whose` to the port of an executor is answered.
async fn answer(ca: &Certificates, whose: &Certificates, executor: &Executor) -> Outcome<Code> {
    let files = TlsFiles {
        ca: Some(PathBuf::from(ca.path("ca.pem"))),
        certificate: Some(PathBuf::from(whose.path("executor.pem"))),
        key: Some(PathBuf::from(whose.path("executor.key"))),
        name: None,
    };
    let link = Link::new(&files, None).map_err(words)?;
    let endpoint = link
        .endpoint(&executor.address.to_string())
        .map_err(words)?;
    let here = AttendRequest {
        executor_id: "x".into(),
    };
    // It has no such service; what counts is whether it says so.
    match ExecutorServiceClient::new(endpoint.connect_lazy())
        .attend(here)
        .await
    {
        Ok(_) => Ok(Code::Ok),
        Err(status) => Ok(status.code()),
    }
}

async fn run(machines: &Machines, certificates: &Certificates) -> Outcome<Ended> {
    let (ca, certificate) = (certificates.path("ca.pem"), certificates.path("client.pem"));
    let (key, url) = (
        certificates.path("client.key"),
        format!("https://{}", machines.scheduler.address),
    );
    let variables = [
        ("WINDROW_SCHEDULER", url.as_str()),
        ("WINDROW_TLS_CA", &ca),
        ("WINDROW_TLS_CERT", &certificate),
        ("WINDROW_TLS_KEY", &key),
    ];
    program::end(machines.pipeline.start("run", &NOW, &variables)?).await
}

/// Executors that must not be let in, with the exit status and the words of their ends.
async fn strangers(machines: &Machines, ours: &Certificates, others: &Certificates) -> Outcome {
    let address = &machines.scheduler.address;
    let foreign = shown(ours, others);
    let distrustful = shown(others, others);
    let ca = vec!["--tls-ca".to_string(), ours.path("ca.pem")];
    for (what, arguments, said) in [
        ("a foreign certificate", &foreign, "EXECUTOR_REFUSED"),
        ("a foreign authority", &distrustful, "EXECUTOR_REFUSED"),
        ("no certificate", &ca, "LINK_NOT_USABLE"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let folder = machines.folder.join("stranger");
        let child = Executor::begin(&folder, address, free_address()?, &arguments)?;
        let ended = program::end(child).await?;
        if ended.exit != Some(1) || !ended.stderr.contains(said) {
            return Err(format!("{what}: {}", ended.told()));
        }
        if !ended.stderr.contains("certificate") {
            return Err(format!("{what}, without the reason: {}", ended.told()));
        }
    }
    Ok(())
}

#[test]
fn mutual_tls_between_scheduler_and_executors() {
    play(async {
        choose_cryptography();
        let scratch = tempfile::tempdir().map_err(words)?;
        let names = ["scheduler", "executor", "client"];
        let ours = Certificates::new(&scratch.path().join("ours"), &names)?;
        let others = Certificates::new(&scratch.path().join("others"), &names)?;
        let (certificate, key) = (ours.path("scheduler.pem"), ours.path("scheduler.key"));
        let ca = ours.path("ca.pem");
        let tls = [
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
            "--tls-client-ca",
            &ca,
        ];
        let mut options = vec![
            "--executor-timeout-seconds",
            "6",
            "--no-executor-seconds",
            "6",
        ];
        options.extend(tls);
        let machines = Machines::start(scratch.path(), 50, "", &options).await?;

        // One that speaks plainly is not understood, and goes on waiting.
        let address = machines.scheduler.address.clone();
        let mut plain = machines.executor("plain", &address, &[]).await?;
        strangers(&machines, &ours, &others).await?;
        let without = run(&machines, &ours).await?.expect_exit(1)?;
        if without.report()?["flows"][0]["error"]["code"] != "NO_EXECUTOR" {
            return Err(format!("strangers were let in: {}", without.told()));
        }
        machines.expect(&machines.old).await?;
        if plain.ended()?.is_some() || !plain.told().contains("waiting for the scheduler") {
            return Err(format!("it does not wait: {}", plain.told()));
        }

        let own = shown(&ours, &ours);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let first = machines.executor("first", &address, &own).await?;
        let second = machines.executor("second", &address, &own).await?;
        until("executors are ready", async || {
            let first = super::get(first.http, "/health/ready").await?;
            let second = super::get(second.http, "/health/ready").await?;
            Ok(first == "ready" && second == "ready")
        })
        .await?;
        run(&machines, &ours).await?.expect_exit(0)?;
        machines.expect(&machines.new).await?;
        let tasks = first.figure(SUCCEEDED).await? + second.figure(SUCCEEDED).await?;
        if tasks == 0 || plain.figure(SUCCEEDED).await? > 0 {
            return Err(format!("{tasks} tasks ran on executors"));
        }
        // What tasks made is fetched with a certificate, or not at all.
        let known = answer(&ours, &ours, &first).await?;
        let unknown = answer(&ours, &others, &first).await?;
        match (known, unknown) {
            // With TLS 1.3 the refusal may come when the first request is under way.
            (Code::Unimplemented, Code::Unavailable | Code::Unknown | Code::Cancelled) => Ok(()),
            other => Err(format!("an executor's port answers {other:?}")),
        }
    });
}
