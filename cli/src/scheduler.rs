//! `scheduler`: the process that runs the updates of many clients.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anstream::{eprintln, println};
use tonic::service::RoutesBuilder;
use windrow_delta::{Location, StoreOptions};
use windrow_flows::fault::Fault;
use windrow_scheduler::cluster::{Cluster, ClusterOptions};
use windrow_scheduler::config::location;
use windrow_scheduler::engine::StageEngine;
use windrow_scheduler::lease::{Lease, LeaseError};
use windrow_scheduler::service::server::{
    Bound, ServerError, ServerOptions, Tls, choose_cryptography,
};
use windrow_scheduler::service::{Service, ServiceOptions, Token};

use crate::args::{LinkArgs, SchedulerArgs};
use crate::executor;
use crate::update::{FAILED, REFUSED};

/// Why no scheduler runs.
enum NotRun {
    /// Before it began.
    Refused(Fault),
    Ended(Fault),
}

pub async fn run(args: &SchedulerArgs) -> ExitCode {
    match serve(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(NotRun::Refused(fault)) => {
            eprintln!("{fault}");
            ExitCode::from(REFUSED)
        }
        Err(NotRun::Ended(fault)) => {
            eprintln!("{fault}");
            ExitCode::from(FAILED)
        }
    }
}

/// What runs the tasks of updates, and what its workers talk to on this scheduler's port.
async fn engine(
    args: &SchedulerArgs,
) -> Result<(Option<Arc<dyn StageEngine>>, RoutesBuilder), Fault> {
    let mut routes = RoutesBuilder::default();
    if args.in_process {
        return Ok((None, routes));
    }
    // Executors show certificates of this authority, and are shown that of the port.
    let ca = std::env::var_os("WINDROW_TLS_CA")
        .map(PathBuf::from)
        .or_else(|| args.tls_client_ca.clone());
    let link = executor::link(&LinkArgs {
        token_file: args.token_file.clone(),
        tls_cert: ca.as_ref().and(args.tls_cert.clone()),
        tls_key: ca.as_ref().and(args.tls_key.clone()),
        tls_ca: ca,
        tls_name: args.tls_name.clone(),
    })
    .map_err(|e| Fault::new("LINK_NOT_USABLE", e.to_string()))?;
    let options = ClusterOptions {
        executor_timeout: Duration::from_secs(args.executor_timeout_seconds),
        no_executor_wait: Duration::from_secs(args.no_executor_seconds),
        link,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options)
        .await
        .map_err(|e| Fault::new("ENGINE_NOT_STARTED", e.to_string()))?;
    cluster.add_routes(&mut routes);
    Ok((Some(Arc::new(cluster)), routes))
}

async fn serve(args: &SchedulerArgs) -> Result<(), NotRun> {
    choose_cryptography();
    let (mut service_options, server_options) = options(args).map_err(NotRun::Refused)?;
    // The port first: who can't have it must not take over what another one runs.
    let bound = Bound::new(server_options).await.map_err(refused)?;
    let mut end = std::pin::pin!(end());
    let Some(led) = lead(args, &service_options, &bound, end.as_mut()).await? else {
        return Ok(());
    };
    let lease = Arc::new(led.lease);
    let (engine, routes) = engine(args).await.map_err(NotRun::Refused)?;
    service_options.engine = engine;
    service_options.fence = Some(lease.clone());
    service_options.metrics = bound.metrics();
    let service = Service::open(&service_options)
        .await
        .map_err(|e| refused(ServerError::from(e)))?;
    if !led.is_listening {
        println!("listening on {}", bound.address());
    }
    let served = bound.serve(service, routes, end);
    tokio::select! {
        served = served => served.map_err(|error| match refused(error) {
            NotRun::Refused(fault) | NotRun::Ended(fault) => NotRun::Ended(fault),
        })?,
        lost = lease.keep() => {
            return Err(NotRun::Ended(Fault::new(lost.code(), lost.to_string())));
        }
    }
    lease.give_back().await;
    Ok(())
}

/// How long it may stay unknown who leads before the port is served.
const SILENT: Duration = Duration::from_secs(2);

/// A process that leads.
struct Led {
    lease: Lease,
    /// It has said where it listens, since it had to wait.
    is_listening: bool,
}

/// Waits until this process leads, and serves the port as one that waits. Nothing comes back when it
/// is told to end meanwhile.
async fn lead(
    args: &SchedulerArgs,
    options: &ServiceOptions,
    bound: &Bound,
    mut end: std::pin::Pin<&mut impl Future<Output = ()>>,
) -> Result<Option<Led>, NotRun> {
    let root = Location::open(&options.storage, &StoreOptions::from_environment())
        .map_err(|e| NotRun::Refused(Fault::new(e.code(), e.to_string())))?;
    // In containers, addresses and numbers of processes are all the same.
    let host = std::env::var("HOSTNAME").unwrap_or_default();
    let holder = format!("{host} {} {}", bound.address(), std::process::id());
    let duration = Duration::from_secs(args.lease_seconds.max(2));
    let (tell, mut leader) = tokio::sync::watch::channel(None::<String>);
    let waits = |holder: &str| {
        eprintln!("waiting: {holder} leads on this storage");
        tell.send_replace(Some(holder.to_string()));
    };
    let mut lease = std::pin::pin!(Lease::acquire(&root, holder.trim(), duration, waits));
    let led = |lease: Result<Lease, LeaseError>, is_listening: bool| match lease {
        Ok(lease) => Ok(Some(Led {
            lease,
            is_listening,
        })),
        Err(e) => Err(NotRun::Refused(Fault::new(e.code(), e.to_string()))),
    };
    tokio::select! {
        biased;
        lease = &mut lease => return led(lease, false),
        _ = tokio::time::timeout(SILENT, leader.changed()) => {}
        () = &mut end => return Ok(None),
    }
    let mut standby = bound.stand_by(leader).map_err(refused)?;
    println!("listening on {}", bound.address());
    let led = tokio::select! {
        lease = &mut lease => led(lease, true),
        failed = standby.failed() => return Err(refused(failed)),
        () = &mut end => Ok(None),
    };
    standby.end().await;
    if let Ok(Some(_)) = led {
        eprintln!("this scheduler leads now");
    }
    led
}

fn refused(error: ServerError) -> NotRun {
    let message = crate::with_sources(&error);
    let code = code_word(error.code());
    let mut fault = Fault::new(code, message);
    if let Some(help) = error.help() {
        fault = fault.help(help);
    }
    NotRun::Refused(fault)
}

/// Codes of a start that failed; the others are those of the storage.
fn code_word(code: &str) -> &'static str {
    const KNOWN: [&str; 6] = [
        "REMOTE_NOT_SECURED",
        "PORT_NOT_AVAILABLE",
        "TLS_NOT_USABLE",
        "SERVER_ENDED",
        "LOCATION_NOT_USABLE",
        "RECORD_DAMAGED",
    ];
    let known = KNOWN.iter().find(|known| **known == code);
    known.copied().unwrap_or("STORAGE_NOT_USABLE")
}

fn options(args: &SchedulerArgs) -> Result<(ServiceOptions, ServerOptions), Fault> {
    let here = std::env::current_dir()
        .map_err(|e| Fault::new("LOCATION_NOT_USABLE", format!("no current folder: {e}")))?;
    let allowed = args.allow_path.iter();
    let service = ServiceOptions {
        storage: location(&args.storage, &here)?,
        allowed: allowed
            .map(|path| location(path, &here))
            .collect::<Result<_, _>>()?,
        max_updates: args.max_updates.max(1),
        engine: None,
        fence: None,
        metrics: Arc::default(),
    };
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => Some(Tls {
            certificate: file(certificate, "TLS_NOT_USABLE")?,
            key: file(key, "TLS_NOT_USABLE")?,
            client_ca: match &args.tls_client_ca {
                Some(path) => Some(file(path, "TLS_NOT_USABLE")?),
                None => None,
            },
        }),
        _ => None,
    };
    let server = ServerOptions {
        bind: args.bind,
        http: args.http,
        token: token(args)?,
        tls,
        insecure_remote: args.insecure_remote,
        drain: Duration::from_secs(args.drain_seconds),
    };
    Ok((service, server))
}

fn file(path: &Path, code: &'static str) -> Result<Vec<u8>, Fault> {
    std::fs::read(path)
        .map_err(|e| Fault::new(code, format!("`{}` can't be read: {e}", path.display())))
}

fn token(args: &SchedulerArgs) -> Result<Option<Token>, Fault> {
    const CODE: &str = "TOKEN_NOT_USABLE";
    let (text, from) = match &args.token_file {
        Some(path) => {
            let bytes = file(path, CODE)?;
            let from = format!("file `{}`", path.display());
            (String::from_utf8_lossy(&bytes).into_owned(), from)
        }
        None => match std::env::var("WINDROW_TOKEN") {
            Ok(text) => (text, "WINDROW_TOKEN".to_string()),
            Err(_) => return Ok(None),
        },
    };
    // A token that is meant and missing must not open the door.
    Token::new(&text).map(Some).ok_or_else(|| {
        Fault::new(
            CODE,
            format!("{from} holds no token: it has 1 to 512 visible ASCII characters"),
        )
    })
}

/// Returns when the process is told to end. From the call on, not from the first wait on, a signal is
/// heard.
fn end() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let mut terminate = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate()).ok()
    };
    async move {
        #[cfg(unix)]
        if let Some(terminate) = &mut terminate {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
        let _ = tokio::signal::ctrl_c().await;
    }
}
