//! A simulator of the replay service: server, actors, learner, reanalysis, operator and hostile clients on one thread,
//! in virtual time, from one seed.
//!
//! A seed becomes a [`plan`]: a list of steps, each with a separate random seed. The [`world`] executes the steps one
//! after the other against the real table service and the real log, on a disk that lies. An [`oracle`] compares the
//! promises of the server with the stored state. After the last step all faults stop, and every honest actor must make
//! progress. [`run`] executes a plan and returns the digest, which is the same on every machine; [`shrink`] removes
//! steps from a failing plan as long as it fails. No thread, socket, file or clock of the machine is used by a run.
//! [`arguments`] are the options of the program. Start with [`run::run`].

mod actor;
mod archive;
mod archive_folder;
mod archive_store;
pub mod arguments;
mod attack;
mod bus;
mod checks;
mod commits;
mod content;
mod disk_faults;
mod insert_call;
mod learner;
mod operator;
pub mod oracle;
pub mod plan;
pub mod run;
mod sample_stream;
mod second;
mod server;
mod settings;
mod settle;
pub mod shrink;
mod trace;
pub mod world;

#[cfg(test)]
mod planted;
