use std::collections::{BTreeMap, VecDeque};

use rand::{Rng, RngExt};

/// Number of a stream.
pub(crate) type StreamId = u64;

/// Client of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// An actor, by index, with the number of the uplink.
    Actor { index: usize, uplink: u64 },
    /// The learner.
    Learner,
    /// A hostile client, which ignores all responses.
    Hostile,
}

/// Service that a stream calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Insert,
    /// Inserts into the second server.
    InsertSecond,
    Sample,
}

/// Unit of transport in one direction of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Packet {
    /// An encoded message.
    Message(Vec<u8>),
    /// End of the stream, with the reason.
    End(String),
}

/// A packet that has arrived.
#[derive(Debug)]
pub(crate) enum Arrival {
    AtServer(StreamId, Service, Packet),
    AtClient(StreamId, Client, Packet),
}

/// One stream with the packets in transit.
#[derive(Debug)]
struct Stream {
    client: Client,
    service: Service,
    to_server: VecDeque<Packet>,
    to_client: VecDeque<Packet>,
    /// False once the client has given up the stream.
    client_listens: bool,
    /// False once the server has given up the stream.
    server_listens: bool,
}

/// The network: packets of one direction of a stream arrive in order, everything else in any order.
#[derive(Debug, Default)]
pub(crate) struct Bus {
    streams: BTreeMap<StreamId, Stream>,
    next: StreamId,
}

/// Side of a stream that notices a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
    Both,
}

impl Bus {
    /// Opens a stream.
    pub(crate) fn open(&mut self, client: Client, service: Service) -> StreamId {
        let id = self.next;
        self.next += 1;
        let (to_server, to_client) = (VecDeque::new(), VecDeque::new());
        self.streams
            .insert(id, Stream { client, service, to_server, to_client, client_listens: true, server_listens: true });
        id
    }

    /// Returns the client of a stream.
    pub(crate) fn client_of(&self, id: StreamId) -> Option<Client> {
        self.streams.get(&id).map(|stream| stream.client)
    }

    /// Sends a packet to the server; it is lost if the server has given up the stream.
    pub(crate) fn send_to_server(&mut self, id: StreamId, packet: Packet) {
        if let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.server_listens) {
            stream.to_server.push_back(packet);
        }
    }

    /// Sends a packet to the client; it is lost if the client has given up the stream.
    pub(crate) fn send_to_client(&mut self, id: StreamId, packet: Packet) {
        if let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.client_listens) {
            stream.to_client.push_back(packet);
        }
    }

    /// Records that the client has given up the stream.
    pub(crate) fn client_left(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.client_listens = false;
            stream.to_client.clear();
            self.forget(id);
        }
    }

    /// Records that the server has given up the stream.
    pub(crate) fn server_left(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.server_listens = false;
            stream.to_server.clear();
            self.forget(id);
        }
    }

    fn forget(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(|stream| !stream.client_listens && !stream.server_listens) {
            self.streams.remove(&id);
        }
    }

    /// Breaks one stream: packets in transit to a side that notices are lost, and that side receives the end of the
    /// stream.
    pub(crate) fn cut(&mut self, side: Side, rng: &mut impl Rng) -> Option<(StreamId, Client)> {
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        if ids.is_empty() {
            return None;
        }
        let id = ids[rng.random_range(0..ids.len())];
        let stream = self.streams.get_mut(&id)?;
        if side != Side::Server && stream.client_listens {
            stream.to_client = VecDeque::from([Packet::End("the connection was reset".to_owned())]);
        }
        if side != Side::Client && stream.server_listens {
            stream.to_server = VecDeque::from([Packet::End("the connection was reset".to_owned())]);
        }
        Some((id, stream.client))
    }

    /// Ends all streams of the first server after the process has stopped.
    pub(crate) fn server_ended(&mut self) {
        for stream in self.streams.values_mut().filter(|stream| stream.service != Service::InsertSecond) {
            stream.server_listens = false;
            stream.to_server.clear();
            if stream.client_listens {
                stream.to_client = VecDeque::from([Packet::End("the server is gone".to_owned())]);
            }
        }
        self.streams.retain(|_, stream| stream.client_listens || stream.service == Service::InsertSecond);
    }

    /// Ends all streams of an actor after the process has stopped; the server notices later.
    pub(crate) fn actor_ended(&mut self, actor: usize) {
        let is_of = |stream: &Stream| matches!(stream.client, Client::Actor { index, .. } if index == actor);
        let ids: Vec<StreamId> = self.streams.iter().filter(|(_, stream)| is_of(stream)).map(|(&id, _)| id).collect();
        for id in ids {
            self.send_to_server(id, Packet::End("the client is gone".to_owned()));
            self.client_left(id);
        }
    }

    /// Removes one packet from the front of a random direction of a random stream.
    pub(crate) fn deliver(&mut self, rng: &mut impl Rng) -> Option<Arrival> {
        let ready: Vec<(StreamId, bool)> = self
            .streams
            .iter()
            .flat_map(|(&id, stream)| {
                let there = (!stream.to_server.is_empty()).then_some((id, true));
                let back = (!stream.to_client.is_empty()).then_some((id, false));
                there.into_iter().chain(back)
            })
            .collect();
        if ready.is_empty() {
            return None;
        }
        let (id, to_server) = ready[rng.random_range(0..ready.len())];
        self.deliver_of(id, if to_server { Side::Server } else { Side::Client })
    }

    /// Removes one packet from the front of one direction of a stream.
    pub(crate) fn deliver_of(&mut self, id: StreamId, side: Side) -> Option<Arrival> {
        let stream = self.streams.get_mut(&id)?;
        if side == Side::Server {
            return Some(Arrival::AtServer(id, stream.service, stream.to_server.pop_front()?));
        }
        Some(Arrival::AtClient(id, stream.client, stream.to_client.pop_front()?))
    }

    /// Returns the streams of hostile clients.
    pub(crate) fn hostile(&self) -> Vec<StreamId> {
        let is_hostile = |(_, stream): &(&StreamId, &Stream)| stream.client == Client::Hostile;
        self.streams.iter().filter(is_hostile).map(|(&id, _)| id).collect()
    }
}
