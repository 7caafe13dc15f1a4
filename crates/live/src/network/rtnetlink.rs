//! The rtnetlink requests that create, move and set up the two interfaces of a [`Pair`](super::Pair).

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A connection to rtnetlink, in the network namespace of the thread that opened it.
pub struct Rtnetlink(Socket);

impl Rtnetlink {
    pub fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Rtnetlink(socket))
    }

    /// Creates a veth pair: `near` in this namespace, `far` in the namespace of the
    /// descriptor `far_namespace`.
    pub fn create_veth(&self, near: &str, far: &str, far_namespace: RawFd) -> io::Result<()> {
        let mut peer = LinkMessage::default();
        peer.attributes =
            vec![LinkAttribute::IfName(far.to_owned()), LinkAttribute::NetNsFd(far_namespace)];
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName(near.to_owned()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        self.request(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Moves an interface into the namespace of the descriptor `namespace`.
    pub fn move_to(&self, index: u32, namespace: RawFd) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![LinkAttribute::NetNsFd(namespace)];
        self.request(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Switches an interface on.
    pub fn set_up(&self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Gives an interface an IPv4 address.
    pub fn add_address(&self, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = prefix;
        message.header.index = index;
        message.attributes = vec![
            AddressAttribute::Local(IpAddr::V4(address)),
            AddressAttribute::Address(IpAddr::V4(address)),
        ];
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Sends a request and waits for its acknowledgement.
    fn request(&self, payload: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(payload));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        let (answer, _) = self.0.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
            .map_err(io::Error::other)?;
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
            NetlinkPayload::Error(error) => Err(error.to_io()),
            other => Err(io::Error::other(format!("unexpected netlink answer: {other:?}"))),
        }
    }
}
