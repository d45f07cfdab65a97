// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/shlex"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// The defaults of keepalived (keepalived.conf(5)).
const (
	defaultDelayLoop = 60 * time.Second
	defaultTimeout   = 5 * time.Second
)

// checkers maps keepalived's checkers to the check type, the number of retries before a server fails, and the delay
// before a retry (0: the interval between checks).
var checkers = map[string]struct {
	kind    lb.CheckType
	retries uint64
	pause   time.Duration
}{
	"TCP_CHECK": {lb.CheckTCP, 1, time.Second}, "HTTP_GET": {lb.CheckHTTP, 1, 3 * time.Second},
	"SSL_GET":   {lb.CheckHTTP, 1, 3 * time.Second},
	"DNS_CHECK": {lb.CheckDNS, 3, 0}, "UDP_CHECK": {lb.CheckUDP, 1, time.Second},
	"PING_CHECK": {lb.CheckICMP, 1, time.Second},
	"MISC_CHECK": {lb.CheckExec, 0, time.Second}, "SMTP_CHECK": {lb.CheckTCP, 1, time.Second},
}

func isCheck(word string) bool {
	_, known := checkers[word]
	return known || word == "FILE_CHECK" || word == "BFD_CHECK"
}

// checks gives a service the checks of its first real server that has some, and remarks on real servers with other
// checks.
func (r *reader) checks(s *draft.Service, n *node) {
	var first []lb.Check
	var from *node
	var unchecked []*node
	for _, server := range n.children {
		if server.word(0) != "real_server" || !r.backend(s, server) {
			continue
		}
		own := r.checksOf(s, n, server)
		switch {
		case len(own) == 0:
			unchecked = append(unchecked, server)
		case from == nil:
			first, from = own, server
		case from != nil && !sameCommands(own, first):
			r.Left(server.at,
				"is checked by another program, or with other arguments, than the real server at %s; a service's checks are those of all its backends, so the program is not run: let one ask all, by JEOUL_ADDRESS and JEOUL_PORT", from.at)
			first = withoutCommands(first)
		case from != nil && !reflect.DeepEqual(own, first):
			r.Approximate(server.at,
				"is checked in another way than the real server at %s; here a service's checks are those of all its backends, and they are that one's", from.at)
		}
	}
	s.Checks.List = first
	for _, server := range unchecked {
		if len(first) > 0 {
			r.Approximate(server.at,
				"is not checked by keepalived, and so always serves; here a service's checks are those of all its backends, and they are those of the real server at %s", from.at)
		}
	}
}

// commands returns the programs that checks run.
func commands(list []lb.Check) (all [][]string) {
	for _, c := range list {
		if c.Exec != nil {
			all = append(all, c.Exec.Command)
		}
	}
	return all
}

// sameCommands reports whether two lists of checks run the same programs. It is true if one runs none.
func sameCommands(a, b []lb.Check) bool {
	own, other := commands(a), commands(b)
	return len(own) == 0 || len(other) == 0 || reflect.DeepEqual(own, other)
}

// withoutCommands returns the checks that run no program.
func withoutCommands(list []lb.Check) []lb.Check {
	return slices.DeleteFunc(list, func(c lb.Check) bool { return c.Exec != nil })
}

// backend reports whether a real server is a backend of the service.
func (r *reader) backend(s *draft.Service, n *node) bool {
	for _, at := range s.BackendAt {
		if at == n.at {
			return true
		}
	}
	return false
}

// checksOf reads the checkers of a real server.
func (r *reader) checksOf(s *draft.Service, virtual, server *node) []lb.Check {
	var list []lb.Check
	for _, n := range server.children {
		switch _, known := checkers[n.word(0)]; {
		case known:
			list = append(list, r.checker(s, n, []*node{n, server, virtual})...)
		case isCheck(n.word(0)):
			r.leave(n, "Jeoul has no check like it; a program can ask (exec)")
		}
	}
	return list
}

// setting returns the value of a word in the innermost block that has it, or "".
func setting(blocks []*node, word string) string {
	for _, block := range blocks {
		if c := block.child(word); c != nil {
			return c.word(1)
		}
	}
	return ""
}

// seconds reads a word's value as a duration in seconds, or returns the default.
func seconds(blocks []*node, word string, usual time.Duration) time.Duration {
	if text := setting(blocks, word); text != "" {
		if d, err := draft.Time(text, time.Second); err == nil {
			return d
		}
	}
	return usual
}

// times sets a check's interval and timeout. A timeout that the configuration does not name is bounded by the interval.
func (r *reader) times(c *lb.Check, n *node, blocks []*node) {
	interval := seconds(blocks, "delay_loop", defaultDelayLoop)
	word, usual := "connect_timeout", defaultTimeout
	if n.word(0) == "MISC_CHECK" {
		word, usual = "misc_timeout", interval
	}
	timeout := min(seconds(blocks, word, usual), time.Minute)
	if setting(blocks, word) != "" {
		interval = r.FitInterval(n.at, interval, timeout, word)
	} else if timeout > interval {
		r.Approximate(n.at, "a check may take %s (delay_loop), in place of keepalived's %s: the next one begins after it",
			interval, timeout)
	}
	draft.SetTimes(c, interval, timeout)
}

// checker reads a checker. HTTP_GET becomes one check for each of its URLs.
func (r *reader) checker(s *draft.Service, n *node, blocks []*node) []lb.Check {
	usual := checkers[n.word(0)]
	c, retries := draft.NewCheck(usual.kind), usual.retries
	if text := cmp.Or(setting([]*node{n}, "nb_get_retry"), setting(blocks, "retry")); text != "" {
		if count, _, err := draft.Number(text, 99); err == nil {
			retries = count
		}
	}
	c.Fall, c.Rise = uint16(retries)+1, 1
	c.Fast = seconds(blocks, "delay_before_retry", usual.pause)
	r.times(&c, n, blocks)
	if text := setting([]*node{n}, "connect_port"); text != "" {
		if port, err := draft.Port("tcp", text); err == nil && port != portOf(s, blocks[1]) {
			c.Port = port
		}
	}
	r.Carry(n.at)
	r.remarkChecker(n)
	switch n.word(0) {
	case "HTTP_GET", "SSL_GET":
		return r.urls(n, c, blocks)
	case "SMTP_CHECK":
		r.Approximate(n.at, "Jeoul does not speak SMTP; it opens a connection (tcp), and a program can ask more (exec)")
	case "DNS_CHECK":
		c.DNS.Name, c.DNS.Type = strings.TrimSuffix(setting([]*node{n}, "name"), "."), "SOA"
		if kind := setting([]*node{n}, "type"); kind != "" {
			c.DNS.Type = kind
		}
		if c.DNS.Name == "" {
			r.Left(n.at, "asks for the root, and a check of Jeoul's has the name that is asked for")
			return nil
		}
	case "UDP_CHECK":
		r.datagrams(n, c.UDP)
	case "MISC_CHECK":
		return r.misc(n, blocks[1], c)
	}
	return []lb.Check{c}
}

// datagrams reads the datagrams of a UDP_CHECK. Jeoul expects an answer to what is sent; keepalived expects one by
// require_reply, whatever is sent.
func (r *reader) datagrams(n *node, c *lb.UDPCheck) {
	r.bytes(n, "payload", &c.Send)
	r.bytes(n, "require_reply", &c.Expect)
	switch reply := n.child("require_reply"); {
	case reply == nil && len(c.Send) > 0:
		c.Send = nil
		r.Approximate(n.child("payload").at,
			"an empty datagram is sent instead: keepalived passes a server that does not answer, and Jeoul expects an answer to what it sends")
	case reply != nil && len(reply.words) == 1 && len(c.Send) == 0:
		r.Approximate(reply.at,
			"a server that does not answer passes: Jeoul expects any answer only to what it sends; write send, a datagram that servers answer")
	}
}

// bytes reads hexadecimal digits. A byte does not continue in the next word.
func (r *reader) bytes(n *node, word string, into *[]byte) {
	c := n.child(word)
	if c == nil {
		return
	}
	var all []byte
	for _, digits := range c.words[1:] {
		for pair := range slices.Chunk([]byte(digits), 2) {
			b, err := strconv.ParseUint(string(pair), 16, 8)
			if err != nil {
				r.Left(c.at, "%q is no byte in hexadecimal digits", pair)
				return
			}
			all = append(all, byte(b))
		}
	}
	*into = all
	r.Carry(c.at)
}

// portOf returns a real server's port.
func portOf(s *draft.Service, server *node) uint16 {
	if port, err := draft.Port(s.Protocol.String(), server.word(2)); err == nil {
		return port
	}
	return s.Port
}

// remarkChecker carries over or remarks on each line of a checker.
func (r *reader) remarkChecker(n *node) {
	for _, c := range n.children {
		switch c.word(0) {
		case "connect_port", "connect_timeout", "retry", "nb_get_retry", "delay_before_retry", "delay_loop", "url",
			"name", "type", "misc_path", "misc_timeout", "virtualhost":
			r.Carry(c.at)
		case "payload", "require_reply": // read by bytes
		case "enable_sni": // read by urls
			r.Carry(c.at)
		case "fwmark":
			r.leave(c, "a check's packets bear no mark; where routes go by it, with via: address, source names the address that they are sent from")
		case "fast_recovery":
			r.leave(c, "a real server that fails is healthy after as many answers as rise says")
		case "http_protocol":
			r.Approximate(c.at, "Jeoul's check speaks HTTP/1.1, or by http2: true HTTP/2")
		case "connect_ip", "host":
			r.leave(c, "a check asks the backend itself")
		case "bindto", "bind_port", "bind_if":
			r.leave(c, "the kernel chooses the address that a check is sent from; with via: address, source names another")
		case "misc_dynamic":
			r.leave(c, "a program of a check says yes or no; for weights, let an agent say them (type: agent)")
		default:
			r.passOver(inChecker, c)
		}
	}
}

// urls makes a check for each URL.
func (r *reader) urls(n *node, c lb.Check, blocks []*node) []lb.Check {
	var list []lb.Check
	for _, url := range n.children {
		if url.word(0) != "url" {
			continue
		}
		one := c
		request := lb.HTTPCheck{Method: "GET", Path: "/", Host: setting(append([]*node{url}, blocks...), "virtualhost"),
			Status: []lb.StatusRange{{First: 200, Last: 299}}}
		for _, line := range url.children {
			r.url(line, &request)
		}
		if without := url.child("regex_no_match"); without != nil && url.child("regex") != nil {
			request.Body = ""
			r.Left(url.child("regex").at,
				"by regex_no_match, a page that matches fails; body has an expression that the page must match")
		}
		one.HTTP = &request
		if n.word(0) == "SSL_GET" {
			one.TLS = &lb.TLSCheck{}
			if n.child("enable_sni") != nil {
				one.TLS.ServerName = request.Host
			}
		}
		list = append(list, one)
	}
	if len(list) == 0 {
		r.Left(n.at, "names no url")
	}
	return list
}

// url reads a line of a block url.
func (r *reader) url(line *node, request *lb.HTTPCheck) {
	switch line.word(0) {
	case "path":
		request.Path = line.word(1)
	case "virtualhost":
	case "status_code":
		var list []lb.StatusRange
		for _, word := range line.words[1:] {
			first, last, isRange := strings.Cut(word, "-")
			if !isRange {
				last = first
			}
			from, err1 := strconv.ParseUint(first, 10, 16)
			to, err2 := strconv.ParseUint(last, 10, 16)
			if err1 != nil || err2 != nil || from < 100 || to > 599 || from > to {
				r.Left(line.at, "%q is no status code", word)
				return
			}
			list = append(list, lb.StatusRange{First: uint16(from), Last: uint16(to)})
		}
		request.Status = list
	case "regex":
		if _, err := regexp.Compile(line.word(1)); err != nil {
			r.Left(line.at, "RE2, of which Jeoul's expressions are, does not take it: %v", err)
			return
		}
		request.Body = line.word(1)
	case "digest":
		r.leave(line, "Jeoul compares no digests; body has an expression that the page must match")
		return
	default:
		r.leave(line, "Jeoul's check has nothing like it")
		return
	}
	r.Carry(line.at)
}

// misc reads a MISC_CHECK, which runs a program.
func (r *reader) misc(n, server *node, c lb.Check) []lb.Check {
	path := n.child("misc_path")
	if path == nil {
		r.Left(n.at, "names no program")
		return nil
	}
	words, err := shlex.Split(strings.Join(path.words[1:], " "))
	if err != nil || len(words) == 0 || !strings.HasPrefix(words[0], "/") {
		r.Left(path.at, "a check's program has an absolute path")
		return nil
	}
	if c.Exec.Command = forEach(words, server); slices.Equal(c.Exec.Command, words) && len(words) > 1 {
		r.Approximate(path.at,
			"the program gets these arguments for every backend; which one it is to ask is in JEOUL_ADDRESS and JEOUL_PORT")
	}
	return []lb.Check{c}
}

// plainWord matches a word that needs no quotation in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`)

// The shell variables in a program's arguments for the backend to check.
const (
	addressVariable = `"$JEOUL_ADDRESS"`
	portVariable    = `"$JEOUL_PORT"`
)

// quoted quotes a word for a shell.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// withAddress quotes a word for a shell, and replaces the address, and the port after it, by the variables. An example
// of such a word is http://ADDRESS:PORT/.
func withAddress(word, address, port string) string {
	before, after, found := strings.Cut(word, address)
	if !found || address == "" || strings.TrimRight(before, "0123456789.") != before ||
		strings.TrimLeft(after, "0123456789.") != after {
		return quoted(word)
	}
	text := addressVariable
	if before != "" {
		text = quoted(before) + text
	}
	for _, between := range []string{":", "]:"} {
		if rest, is := strings.CutPrefix(after, between+port); is && port != "" &&
			strings.TrimLeft(rest, "0123456789") == rest {
			text, after = text+between+portVariable, rest
		}
	}
	if after != "" {
		text += quoted(after)
	}
	return text
}

// forEach returns a command in which the variables of the backend replace the address and the port of the real server.
// If neither occurs, it returns the words unchanged.
func forEach(words []string, server *node) []string {
	own, script := false, []string{"exec"}
	for i, word := range words {
		text := quoted(word)
		switch {
		case i > 0 && word == server.word(2):
			text = portVariable
		case i > 0:
			text = withAddress(word, server.word(1), server.word(2))
		}
		own = own || text != quoted(word)
		script = append(script, text)
	}
	if !own {
		return words
	}
	return []string{"/bin/sh", "-c", strings.Join(script, " ")}
}
