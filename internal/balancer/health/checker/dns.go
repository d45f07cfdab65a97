// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// maxStrayAnswers is how many datagrams that answer another question are passed over.
const maxStrayAnswers = 16

// responseBytes is the largest response over UDP that is read: 512 are allowed without EDNS (RFC 1035 section 4.2.1),
// which servers are known to exceed.
const responseBytes = 4096

// dns sends a query, and judges the response.
func (a *ask) dns() health.Answer {
	want := a.check.DNS
	if want == nil {
		want = &lb.DNSCheck{Name: ".", Type: "NS"}
	}
	query := new(dns.Msg)
	kind, ok := dns.StringToType[strings.ToUpper(want.Type)]
	if !ok {
		return health.Trouble("unknown type", "is not asked: "+plain(want.Type)+" is no type of DNS records")
	}
	query.SetQuestion(dns.Fqdn(want.Name), kind)
	packed, err := query.Pack()
	if err != nil {
		return trouble(fmt.Errorf("the query: %w", err))
	}
	network := "udp"
	if want.TCP {
		network = "tcp"
	}
	conn, err := a.dial(network)
	if err != nil {
		return a.answerOf(err)
	}
	var response *dns.Msg
	if want.TCP {
		defer finish(conn)
		response, err = a.queryTCP(conn, packed, query)
	} else {
		defer conn.Close()
		response, err = a.queryUDP(conn, packed, query)
	}
	switch {
	case errors.Is(err, errNotDNS):
		return health.Fail("no DNS", "answers with a message that is no response to the query")
	case err != nil:
		return a.evaluateUDP(err)
	}
	return evaluateDNS(response, want)
}

// errNotDNS: the bytes that came are no response to the query.
var errNotDNS = errors.New("no response to the query")

func (a *ask) queryUDP(conn net.Conn, packed []byte, query *dns.Msg) (*dns.Msg, error) {
	if _, err := conn.Write(packed); err != nil {
		return nil, err
	}
	a.step("request", query.Question[0].String(), false)
	buffer := make([]byte, responseBytes)
	for range maxStrayAnswers {
		n, err := conn.Read(buffer)
		if err != nil {
			return nil, err
		}
		// One to another query may be late, or forged.
		if response := responseTo(query, buffer[:n]); response != nil {
			return response, nil
		}
	}
	return nil, errNotDNS
}

func (a *ask) queryTCP(conn net.Conn, packed []byte, query *dns.Msg) (*dns.Msg, error) {
	framed := binary.BigEndian.AppendUint16(nil, uint16(len(packed)))
	if _, err := conn.Write(append(framed, packed...)); err != nil {
		return nil, err
	}
	a.step("request", query.Question[0].String(), false)
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	buffer := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, buffer); err != nil {
		return nil, err
	}
	if response := responseTo(query, buffer); response != nil {
		return response, nil
	}
	return nil, errNotDNS
}

// responseTo reads a response to the query; nil: it is none.
func responseTo(query *dns.Msg, data []byte) *dns.Msg {
	response := new(dns.Msg)
	if err := response.Unpack(data); err != nil && !response.Truncated {
		return nil
	}
	if !response.Response || response.Id != query.Id {
		return nil
	}
	// A server that refuses may leave out the question.
	if len(response.Question) > 0 {
		got, asked := response.Question[0], query.Question[0]
		if !strings.EqualFold(got.Name, asked.Name) || got.Qtype != asked.Qtype {
			return nil
		}
	}
	return response
}

func evaluateDNS(response *dns.Msg, want *lb.DNSCheck) health.Answer {
	code, expected := dns.RcodeToString[response.Rcode], want.Code
	if code == "" {
		code = fmt.Sprintf("code %d", response.Rcode)
	}
	if expected == "" {
		expected = "NOERROR"
	}
	question := plain(want.Type + " " + want.Name)
	if !strings.EqualFold(code, expected) {
		return health.Fail(code, fmt.Sprintf("answers %s with %s, not %s", question, code, plain(expected)))
	}
	if want.Answer == "" {
		return health.Pass(fmt.Sprintf("%s, %d records", code, len(response.Answer)))
	}
	for _, record := range response.Answer {
		if sameData(recordData(record), want.Answer) {
			return health.Pass(code + ", " + plain(want.Answer))
		}
	}
	return health.Fail("another answer", fmt.Sprintf("answers %s with %s, not %s", question, recordsOf(response),
		plain(want.Answer)))
}

// recordData is the data of a record: its text without name, class, type and time to live.
func recordData(record dns.RR) string {
	return strings.TrimPrefix(record.String(), record.Header().String())
}

// sameData compares data as addresses, as names, or as text with or without quotes.
func sameData(got, want string) bool {
	if a, err := netip.ParseAddr(got); err == nil {
		b, err := netip.ParseAddr(want)
		return err == nil && a == b
	}
	return strings.EqualFold(strings.TrimSuffix(got, "."), strings.TrimSuffix(want, ".")) || got == `"`+want+`"`
}

// recordsOf names a few records of an answer.
func recordsOf(response *dns.Msg) string {
	const most = 3
	var all []string
	for i, record := range response.Answer {
		if i == most {
			all = append(all, fmt.Sprintf("%d others", len(response.Answer)-most))
			break
		}
		all = append(all, recordData(record))
	}
	if len(all) == 0 {
		return "no record"
	}
	return plain(strings.Join(all, ", "))
}
