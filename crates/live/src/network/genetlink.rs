//! Requests to a family of generic netlink (Documentation/userspace-api/netlink/intro-specs.rst), for `coalescing` and
//! `napi`. The kernel's answers are checked for their length everywhere; a truncated message is an error.

use std::io;

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_F_NESTED, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NlasIterator,
};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

/// Number of the family that returns the numbers of other families by name (`GENL_ID_CTRL` in `linux/genetlink.h`).
const CONTROLLER: u16 = 0x10;
/// Its command to find a family, and the attributes for that (`CTRL_CMD_GETFAMILY`, `CTRL_ATTR_*`).
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Types of messages that end an answer, and lengths of headers (`linux/netlink.h`). An acknowledgement is an error
/// message with number 0.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NETLINK_HEADER_BYTES: usize = 16;
const FAMILY_HEADER_BYTES: usize = 4;
/// Length of the error number. In an error message, the request's header follows; in a dump's end, the attributes.
const NUMBER_BYTES: usize = 4;
/// Length of the error number and of the request's header.
const ERROR_BYTES: usize = NUMBER_BYTES + NETLINK_HEADER_BYTES;
/// Flag of an error message that does not repeat the request's attributes (`NLM_F_CAPPED`).
const CAPPED: u16 = 0x100;
/// Flag of an error message, or of a dump's end, with attributes of its own (`NLM_F_ACK_TLVS`).
const HAS_ATTRIBUTES: u16 = 0x200;
/// The attribute with the kernel's text about a refusal (`NLMSGERR_ATTR_MSG`).
const ERROR_WORDS: u16 = 1;
/// Largest number of datagrams of one answer.
const DATAGRAMS_MAX: usize = 4096;

/// An attribute of a request.
#[derive(Clone, Debug)]
pub struct Attribute(DefaultNla);

impl Attribute {
    /// An attribute with a number of 32 bits.
    pub fn number(kind: u16, value: u32) -> Attribute {
        Attribute(DefaultNla::new(kind, value.to_ne_bytes().to_vec()))
    }

    /// An attribute with 0 or 1 in 8 bits.
    pub fn flag(kind: u16, value: bool) -> Attribute {
        Attribute(DefaultNla::new(kind, vec![value.into()]))
    }

    /// An attribute with a text that ends with NUL.
    pub fn text(kind: u16, value: &str) -> Attribute {
        Attribute(DefaultNla::new(kind, [value.as_bytes(), &[0]].concat()))
    }

    /// An attribute that contains attributes.
    pub fn nested(kind: u16, values: &[Attribute]) -> Attribute {
        Attribute(DefaultNla::new(kind | NLA_F_NESTED, bytes_of(values)))
    }
}

/// The attributes in the format of netlink.
fn bytes_of(attributes: &[Attribute]) -> Vec<u8> {
    let attributes: Vec<DefaultNla> =
        attributes.iter().map(|attribute| attribute.0.clone()).collect();
    let mut bytes = vec![0; attributes.as_slice().buffer_len()];
    attributes.as_slice().emit(&mut bytes);
    bytes
}

/// The attributes of one message of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer(Vec<(u16, Vec<u8>)>);

impl Answer {
    fn parse(attributes: &[u8]) -> Answer {
        let attributes = NlasIterator::new(attributes).map_while(Result::ok);
        Answer(attributes.map(|attribute| (attribute.kind(), attribute.value().to_vec())).collect())
    }

    fn bytes(&self, kind: u16) -> Option<&[u8]> {
        self.0.iter().find(|(found, _)| *found == kind).map(|(_, value)| value.as_slice())
    }

    /// A number of 8, 16, 32 or 64 bits; `None` if the answer has no such attribute, or one of another length.
    pub fn number(&self, kind: u16) -> Option<u64> {
        let bytes = self.bytes(kind)?;
        match bytes.len() {
            1 => Some(bytes[0].into()),
            2 => Some(u16::from_ne_bytes(bytes.try_into().ok()?).into()),
            4 => Some(u32::from_ne_bytes(bytes.try_into().ok()?).into()),
            _ => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        }
    }
}

/// A connection to a family, in the network namespace of the thread that opened it.
pub struct Family {
    socket: Socket,
    id: u16,
}

impl Family {
    /// Connects to the family `name`.
    ///
    /// Fails if the kernel does not have the family (`NotFound`), or has no generic netlink.
    pub fn open(name: &str) -> io::Result<Family> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_ext_ack(true)?;
        let controller = Family { socket, id: CONTROLLER };
        let answers = controller.request(GET_FAMILY, &[Attribute::text(FAMILY_NAME, name)])?;
        let id = answers.iter().find_map(|answer| answer.number(FAMILY_ID));
        let id = id.and_then(|id| u16::try_from(id).ok()).ok_or(io::ErrorKind::NotFound)?;
        Ok(Family { id, ..controller })
    }

    /// Sends a request, and waits for its answer and its acknowledgement.
    ///
    /// Fails with the kernel's error, and with the kernel's text if there is one.
    pub fn request(&self, command: u8, attributes: &[Attribute]) -> io::Result<Vec<Answer>> {
        self.exchange(command, NLM_F_ACK, attributes)
    }

    /// Requests all objects of a kind; returns a message for each.
    ///
    /// Fails with the kernel's error, and with the kernel's text if there is one.
    pub fn dump(&self, command: u8, attributes: &[Attribute]) -> io::Result<Vec<Answer>> {
        self.exchange(command, NLM_F_DUMP, attributes)
    }

    /// Sends a request with these flags, and reads the answer to its end.
    fn exchange(
        &self,
        command: u8,
        flags: u16,
        attributes: &[Attribute],
    ) -> io::Result<Vec<Answer>> {
        let body = bytes_of(attributes);
        let length = (NETLINK_HEADER_BYTES + FAMILY_HEADER_BYTES + body.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(self.id.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        // Sequence number and port. Both may be 0: each socket has one request at a time, and the
        // kernel fills in the port.
        bytes.extend([0; 8]);
        bytes.extend([command, 1, 0, 0]); // version 1, two reserved bytes
        bytes.extend(body);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        for _ in 0..DATAGRAMS_MAX {
            let (datagram, _) = self.socket.recv_from_full()?;
            if collect_messages(&datagram, &mut answers)? {
                return Ok(answers);
            }
        }
        Err(io::Error::other("the kernel's answer is too long"))
    }
}

/// Appends the messages of a datagram to `answers`. Returns whether the answer ends with this datagram.
///
/// Fails with the kernel's error, or if a message is truncated.
fn collect_messages(mut datagram: &[u8], answers: &mut Vec<Answer>) -> io::Result<bool> {
    let truncated = || io::Error::other("a netlink message is truncated");
    while !datagram.is_empty() {
        let (header, _) =
            datagram.split_first_chunk::<NETLINK_HEADER_BYTES>().ok_or_else(truncated)?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let flags = u16::from_ne_bytes([header[6], header[7]]);
        let body = datagram.get(NETLINK_HEADER_BYTES..length).ok_or_else(truncated)?;
        match kind {
            ERROR | DONE => return check_end(kind, body, flags).map(|()| true),
            _ => {
                answers.push(Answer::parse(body.get(FAMILY_HEADER_BYTES..).ok_or_else(truncated)?))
            }
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Interprets the message that ends an answer: an acknowledgement, or an error with the kernel's text if there is one.
/// `kind` is [`ERROR`] or [`DONE`].
fn check_end(kind: u16, body: &[u8], flags: u16) -> io::Result<()> {
    let number = body.first_chunk().copied().map_or(0, i32::from_ne_bytes);
    if number >= 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(-number);
    // In an error message, the kernel's text follows the repeated request, whose length is the first field of its header.
    let request_length = match flags & CAPPED {
        0 => body.get(4..8).and_then(|bytes| bytes.first_chunk().copied()),
        _ => None,
    };
    let request_bytes = request_length.map_or(0, |length| u32::from_ne_bytes(length) as usize);
    let attributes_bytes = request_bytes.saturating_sub(NETLINK_HEADER_BYTES).next_multiple_of(4);
    let text_offset = match kind {
        DONE => NUMBER_BYTES,
        _ => ERROR_BYTES + attributes_bytes,
    };
    let error_attributes = (flags & HAS_ATTRIBUTES != 0)
        .then(|| Answer::parse(body.get(text_offset..).unwrap_or_default()));
    let text = error_attributes.as_ref().and_then(|answer| answer.bytes(ERROR_WORDS));
    match text.map(|text| String::from_utf8_lossy(text.trim_ascii_end())) {
        None => Err(error),
        Some(text) => {
            let text: String = text.chars().filter(|character| !character.is_control()).collect();
            Err(io::Error::new(error.kind(), format!("{error}: {text}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of a kernel to an attribute that the device lacks, with a text.
    #[test]
    fn a_refusal_has_the_kernels_words() {
        let mut body = (-22_i32).to_ne_bytes().to_vec();
        let request = bytes_of(&[Attribute::number(2, 20)]);
        let request_bytes = (NETLINK_HEADER_BYTES + 4 + request.len()) as u32;
        body.extend(request_bytes.to_ne_bytes());
        body.extend([0; 12]);
        body.extend([20, 1, 0, 0]);
        body.extend(&request);
        body.extend(bytes_of(&[Attribute::text(ERROR_WORDS, "cannot modify\n it")]));
        let error = check_end(ERROR, &body, HAS_ATTRIBUTES).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().ends_with(": cannot modify it"), "{error}");
        // Cut off anywhere, the message still is an error, and nothing panics.
        for length in 4..body.len() {
            assert!(check_end(ERROR, &body[..length], HAS_ATTRIBUTES).is_err());
        }
        assert!(check_end(ERROR, &0_i32.to_ne_bytes(), 0).is_ok());
    }

    /// The end of a dump that fails, as `netlink_dump_done` of the kernel writes it: the text follows the number.
    #[test]
    fn a_dump_that_fails_has_the_kernels_words() {
        let mut body = (-95_i32).to_ne_bytes().to_vec();
        body.extend(bytes_of(&[Attribute::text(ERROR_WORDS, "no such object")]));
        let mut message = ((NETLINK_HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend(DONE.to_ne_bytes());
        message.extend(HAS_ATTRIBUTES.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(&body);
        let error = collect_messages(&message, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().ends_with(": no such object"), "{error}");
        for length in 4..body.len() {
            assert!(check_end(DONE, &body[..length], HAS_ATTRIBUTES).is_err());
        }
        assert!(check_end(DONE, &0_i32.to_ne_bytes(), HAS_ATTRIBUTES).is_ok());
    }

    #[test]
    fn numbers_of_all_sizes_are_read_and_messages_that_are_cut_off_refused() {
        let attributes = [
            Attribute::flag(1, true),
            Attribute::number(2, 70_000),
            Attribute(DefaultNla::new(3, 5_000_000_000_u64.to_ne_bytes().to_vec())),
            Attribute::text(4, "ab"),
        ];
        let answer = Answer::parse(&bytes_of(&attributes));
        assert_eq!(
            [1, 2, 3, 4, 5].map(|kind| answer.number(kind)),
            [Some(1), Some(70_000), Some(5_000_000_000), None, None]
        );
        let mut message = ((NETLINK_HEADER_BYTES + 4 + 8) as u32).to_ne_bytes().to_vec();
        message.extend([0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]);
        message.extend(bytes_of(&[Attribute::number(2, 9)]));
        let mut answers = Vec::new();
        assert!(!collect_messages(&message, &mut answers).unwrap());
        assert_eq!(answers[0].number(2), Some(9));
        for length in 1..message.len() {
            assert!(collect_messages(&message[..length], &mut Vec::new()).is_err(), "{length}");
        }
        // A length of 0 does not make the loop endless.
        assert!(collect_messages(&[0; 32], &mut Vec::new()).is_err());
    }
}
