//! Owns updates: reads a pipeline, plans its flows, gathers staged files and commits each result
//! as one version of its target.
//!
//! `service` is the scheduler as a process that others talk to.
//!
//! Running partition tasks is the executor's work, what a flow means is decided in `flows`, tables
//! are opened and committed through `delta`.

pub mod backfill;
mod backfill_start;
pub mod bind;
mod changed;
pub mod cluster;
pub mod config;
mod contents;
pub mod coverage;
pub mod engine;
pub mod event_reader;
pub mod events;
mod evolve;
mod facts;
mod failpoint;
mod flow;
mod incremental;
mod learned;
pub mod lease;
pub mod ledger;
mod paths;
mod planning;
mod predicate;
pub mod project;
mod rebase;
mod references;
mod removal;
pub mod report;
mod run;
pub mod selection;
pub mod service;
pub mod slicing;
pub mod spans;
pub mod spec;
mod stager;
pub mod update;
mod update_events;
pub mod verify;
mod verify_slices;
