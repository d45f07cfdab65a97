// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"net/textproto"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Bounds of checks.
const (
	maxChecks        = 8
	minCheckInterval = 100 * time.Millisecond
	maxCheckInterval = time.Hour
	minCheckTimeout  = 10 * time.Millisecond
	maxCheckTimeout  = time.Minute
	maxExpiry        = 365 * 24 * time.Hour
	maxJitter        = 50
	maxRiseFall      = 100
	maxHeaders       = 32
	maxStatus        = 16
	maxArguments     = 64
	// maxPath and the constants below it are in bytes.
	maxPath     = 2048
	maxHost     = 253
	maxHeader   = 1024
	maxAnswer   = 255
	maxArgument = 4096
	maxPattern  = 1000
	// maxPayload fits a datagram on every link (RFC 8200 section 5, less the headers).
	maxPayload = 1200
)

// The values of a service's require.
const (
	requireAll = "all"
	requireAny = "any"
)

// oneOf is a scalar that is one of some words.
func oneOf(words ...string) keytable.Scalar[string] {
	return keytable.Scalar[string]{
		Parse: func(text string) (string, string) {
			if !slices.Contains(words, text) {
				return "", fmt.Sprintf("unknown word %s: use one of %s", yamlfile.Quote(text),
					strings.Join(words, ", "))
			}
			return text, ""
		},
		Show:   asIs,
		Kind:   "`" + strings.Join(words, "`, `") + "`",
		Schema: map[string]any{"enum": words},
	}
}

// percent is a share from 0% to most.
func percent(most uint64) keytable.Scalar[uint8] { return share(0, most) }

// share is a scalar in per cent, from least to most.
func share(least, most uint64) keytable.Scalar[uint8] {
	return keytable.Scalar[uint8]{
		Parse: func(text string) (uint8, string) {
			number, sign := strings.CutSuffix(text, "%")
			n, ok := keytable.Decimal(number, most)
			if !ok || !sign || n < least {
				return 0, fmt.Sprintf("%s is not a share in per cent, from %d%% to %d%%; write one such as 10%%",
					yamlfile.Quote(text), least, most)
			}
			return uint8(n), ""
		},
		Show:   func(n uint8) string { return strconv.Itoa(int(n)) + "%" },
		Kind:   fmt.Sprintf("a share from %d%% to %d%%", least, most),
		Schema: map[string]any{"type": "string", "pattern": "^[0-9]{1,3}%$"},
	}
}

// text is a scalar of text that fits a pattern, of up to so many bytes.
func text(kind, pattern, advice string, most int) keytable.Scalar[string] {
	fits := regexp.MustCompile(pattern)
	return keytable.Scalar[string]{
		Parse: func(text string) (string, string) {
			switch {
			case len(text) > most:
				return "", fmt.Sprintf("longer than %d bytes", most)
			case !fits.MatchString(text):
				return "", yamlfile.Quote(text) + " " + advice
			}
			return text, ""
		},
		Show:   asIs,
		Kind:   kind,
		Schema: map[string]any{"type": "string", "pattern": pattern, "maxLength": most},
	}
}

var (
	httpMethod = text("a method in capitals", `^[A-Z]{1,16}$`,
		"is not a method of HTTP; write one such as GET, HEAD or OPTIONS", maxPath)
	httpPath = text("a path that begins with `/`", `^/[!-"$-~]*$`,
		"is not a path; write one such as /healthz, with other than printable ASCII characters escaped (%20)", maxPath)
	hostName = text("a name", `^[!-.0-~]+$`, "is not the name of a host; write one such as www.example.com", maxHost)
)

// plainText is text without control characters, of up to so many bytes.
func plainText(most int) keytable.Scalar[string] {
	return keytable.Scalar[string]{
		Parse: func(text string) (string, string) {
			switch {
			case text == "":
				return "", "empty; write it, or remove the line"
			case len(text) > most:
				return "", fmt.Sprintf("longer than %d bytes", most)
			case strings.ContainsFunc(text, unicode.IsControl):
				return "", yamlfile.Quote(text) + " holds a control character"
			}
			return text, ""
		},
		Show: asIs,
		Kind: "text",
		// Digits alone are a number to YAML.
		Schema: map[string]any{"type": []string{"string", "number", "boolean"}, "minLength": 1, "maxLength": most},
	}
}

// absolutePath is a scalar with the absolute path of a file.
var absolutePath = keytable.Scalar[string]{
	Parse: func(path string) (string, string) {
		if !filepath.IsAbs(path) || strings.ContainsFunc(path, unicode.IsControl) || len(path) > maxArgument {
			return "", yamlfile.Quote(path) + " is not an absolute path; write one such as /etc/ssl/ca.pem"
		}
		return filepath.Clean(path), ""
	},
	Show:   asIs,
	Kind:   "an absolute path",
	Schema: map[string]any{"type": "string", "pattern": "^/", "maxLength": maxArgument},
}

// expression is a regular expression.
var expression = keytable.Scalar[string]{
	Parse: func(text string) (string, string) {
		if len(text) > maxPattern || text == "" {
			return "", fmt.Sprintf("a regular expression has from 1 to %d bytes", maxPattern)
		}
		if _, err := regexp.Compile(text); err != nil {
			return "", fmt.Sprintf(
				"%s does not compile (%v); write it as RE2 has it: https://github.com/google/re2/wiki/Syntax",
				yamlfile.Quote(text), err)
		}
		return text, ""
	},
	Show:   asIs,
	Kind:   fmt.Sprintf("a regular expression (RE2) of up to %d bytes", maxPattern),
	Schema: map[string]any{"type": []string{"string", "number", "boolean"}, "minLength": 1, "maxLength": maxPattern},
}

// reservedHeaders are the header fields that the checker sets by itself.
var reservedHeaders = []string{"Host", "Connection", "Content-Length", "Transfer-Encoding", "Upgrade", "Te", "Trailer",
	"Keep-Alive", "Proxy-Connection"}

var fieldName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// httpHeader is a header field.
var httpHeader = keytable.Scalar[lb.Header]{
	Parse: func(text string) (lb.Header, string) {
		name, value, ok := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok || !fieldName.MatchString(name) || strings.ContainsFunc(value, unicode.IsControl) ||
			len(text) > maxHeader:
			return lb.Header{}, yamlfile.Quote(text) + " is not a header field; write one such as \"X-Check: jeoul\""
		case textproto.CanonicalMIMEHeaderKey(name) == "Host":
			return lb.Header{}, "the request's host is written under host"
		case slices.Contains(reservedHeaders, textproto.CanonicalMIMEHeaderKey(name)):
			return lb.Header{}, name + " is set by the check itself; remove it"
		}
		return lb.Header{Name: name, Value: value}, ""
	},
	Show:   func(h lb.Header) string { return h.Name + ": " + h.Value },
	Kind:   "`\"NAME: VALUE\"`",
	Schema: map[string]any{"type": "string", "pattern": "^[^:]+:", "maxLength": maxHeader},
}

// tokenOf is a scalar with a token (RFC 9110 section 5.6.2), which is a kind of name; example is one.
func tokenOf(kind, example string) keytable.Scalar[string] {
	return keytable.Scalar[string]{
		Parse: func(text string) (string, string) {
			if !fieldName.MatchString(text) || len(text) > maxName {
				return "", fmt.Sprintf("%s cannot be %s; write up to %d letters, digits and - _ such as %s",
					yamlfile.Quote(text), kind, maxName, example)
			}
			return text, ""
		},
		Show:   asIs,
		Kind:   fmt.Sprintf("%s, of up to %d characters", kind, maxName),
		Schema: map[string]any{"type": "string", "minLength": 1, "maxLength": maxName},
	}
}

// weightHeader is the name of a header field of responses.
var weightHeader = tokenOf("the name of a header field", lb.EndpointWeightHeader)

// httpStatus is a status code, or a range of them.
var httpStatus = keytable.Scalar[lb.StatusRange]{
	Parse: func(text string) (lb.StatusRange, string) {
		from, to, several := strings.Cut(text, "-")
		if !several {
			to = from
		}
		first, firstOK := keytable.Decimal(from, 599)
		last, lastOK := keytable.Decimal(to, 599)
		if !firstOK || !lastOK || first < 100 || last < first {
			return lb.StatusRange{}, yamlfile.Quote(text) +
				" is not a status code from 100 to 599, or a range of them; write 200 or 200-299"
		}
		return lb.StatusRange{First: uint16(first), Last: uint16(last)}, ""
	},
	Show: lb.StatusRange.String,
	Kind: "a status code as `200`, or a range as `200-299`",
	Schema: map[string]any{"type": []string{"string", "integer"}, "minimum": 100, "maximum": 599,
		"pattern": "^[1-5][0-9]{2}(-[1-5][0-9]{2})?$"},
}

// payload is the content of a datagram: text, in which a backslash begins an escape of Go's.
var payload = keytable.Scalar[string]{
	Parse: func(text string) (string, string) {
		bytes, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`)
		switch {
		case err != nil || bytes == "":
			return "", yamlfile.Quote(text) +
				` is not the content of a datagram; write text, a backslash as \\ and other bytes as \x00`
		case len(bytes) > maxPayload:
			return "", fmt.Sprintf("%d bytes are more than the %d that fit a datagram on every link", len(bytes),
				maxPayload)
		}
		return bytes, ""
	},
	Show: func(bytes string) string {
		quoted := strconv.QuoteToASCII(bytes)
		return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	},
	Kind:   fmt.Sprintf("text of up to %d bytes, others than printable ones as `\\n` or `\\x00`", maxPayload),
	Schema: map[string]any{"type": []string{"string", "number", "boolean"}, "minLength": 1},
}

var checkKeys = keytable.Table[lb.Check]{
	{Name: "type", Required: true, What: "The protocol that is spoken: [types of checks](../guides/health.md#types).",
		Value: keytable.Optional(func(c *lb.Check) *lb.CheckType {
			return &c.Type
		}, keytable.Word(lb.CheckTypes...), "")},
	{Name: "via",
		What:    "Whether the check goes to the VIP as the service's packets go to the backend (`vip`), or to the backend's own `address`.",
		Refused: "`vip` in the modes `nat`, `fullnat` and `proxy`, and for `icmp` in `dscp`.",
		Value: keytable.Optional(func(c *lb.Check) *lb.Via { return &c.Via }, keytable.Word(lb.ViaVIP, lb.ViaAddress),
			"`vip`; `address` in the modes `nat`, `fullnat` and `proxy`, and for `agent`")},
	{Name: "port", What: "The port that is asked.",
		Value: keytable.Optional(func(c *lb.Check) *uint16 { return &c.Port }, keytable.Number[uint16](1, 65535),
			"the backend's")},
	{Name: "source", What: "The address that the check is sent from.",
		Refused: "`via: vip`, and another family than that of a backend.",
		Value: keytable.Optional(func(c *lb.Check) *netip.Addr { return &c.Source }, hostAddress,
			"the kernel's choice")},
	{Name: "interval", What: "The time from the start of a check to the start of the next.",
		Value: keytable.Field(func(c *lb.Check) *time.Duration {
			return &c.Interval
		}, keytable.Duration(minCheckInterval, maxCheckInterval), lb.DefaultCheckInterval)},
	{Name: "fast", What: "The interval while the answers change, until there is a verdict.",
		Refused: "More than `interval`.",
		Value: keytable.Optional(func(c *lb.Check) *time.Duration {
			return &c.Fast
		}, keytable.Duration(minCheckInterval, maxCheckInterval), "`interval`")},
	{Name: "timeout", What: "Bounds a check as a whole, from its first packet to the last that it needs.",
		Refused: "More than `interval`, and more than `fast`.",
		Value: keytable.Computed(func(c *lb.Check) (time.Duration, bool) {
			return c.Timeout, c.Timeout != defaultTimeout(*c)
		},
			func(c *lb.Check, d time.Duration) { c.Timeout = d }, keytable.Duration(minCheckTimeout, maxCheckTimeout),
			0,
			fmt.Sprintf("`%s`, or the interval where that is less", lb.DefaultCheckTimeout))},
	{Name: "delay", What: "How long a backend that is new in the configuration is not asked.",
		Value: keytable.Optional(func(c *lb.Check) *time.Duration {
			return &c.Delay
		}, keytable.Duration(0, maxCheckInterval), "`0s`")},
	{Name: "jitter", What: "By how much of the interval the start of a check varies.",
		Value: keytable.Optional(func(c *lb.Check) *uint8 { return &c.Jitter }, percent(maxJitter), "`0%`")},
	{Name: "rise", What: "How many checks in a row must pass before a failing backend is healthy.",
		Value: keytable.Field(func(c *lb.Check) *uint16 { return &c.Rise }, keytable.Number[uint16](1, maxRiseFall),
			lb.DefaultCheckRise)},
	{Name: "fall", What: "How many checks in a row must fail before a backend takes no new flow.",
		Value: keytable.Field(func(c *lb.Check) *uint16 { return &c.Fall }, keytable.Number[uint16](1, maxRiseFall),
			lb.DefaultCheckFall)},
	{Name: "method", What: "`http`: the request's method.",
		Value: keytable.Field(func(c *lb.Check) *string { return &httpOf(c).Method }, httpMethod,
			lb.DefaultCheckMethod)},
	{Name: "path", What: "`http`: the request's path and query.",
		Value: keytable.Field(func(c *lb.Check) *string { return &httpOf(c).Path }, httpPath, lb.DefaultCheckPath)},
	{Name: "host", What: "`http`: the request's host.",
		Value: keytable.Optional(func(c *lb.Check) *string { return &httpOf(c).Host }, hostName,
			"the address and port that are asked")},
	{Name: "headers", What: "`http`: header fields that are sent, as `\"NAME: VALUE\"`.",
		Value: keytable.Sequence(func(c *lb.Check) *[]lb.Header { return &httpOf(c).Headers }, httpHeader,
			keytable.Length{Max: maxHeaders, Empty: "name a field, or remove the line",
				TooMany: "that a request can have", Absent: "none"})},
	{Name: "status", What: "`http`: the status codes that pass.",
		Value: keytable.OneOrItems(func(c *lb.Check) *[]lb.StatusRange { return &httpOf(c).Status },
			httpStatus, "range",
			keytable.Length{Max: maxStatus, Empty: "name a status code, or remove the line",
				TooMany: "that there can be", Absent: "`200-399`"})},
	{Name: "body", What: "`http`: a regular expression (RE2) that the response's body must match.",
		Refused: "The method `HEAD`, whose response has none.",
		Value:   keytable.Optional(func(c *lb.Check) *string { return &httpOf(c).Body }, expression, "any body")},
	{Name: "http2", What: "`http`: asks by HTTP/2, over TLS by ALPN, else with prior knowledge.",
		Value: keytable.Field(func(c *lb.Check) *bool { return &httpOf(c).HTTP2 }, keytable.Bool, false)},
	{Name: "weight_header", What: "`http`: the header field of responses that pass whose value is the backend's weight, " +
		"in place of the configured one: [weights from answers](../guides/health.md#weights-from-answers).",
		Value: keytable.Optional(func(c *lb.Check) *string { return &httpOf(c).WeightHeader }, weightHeader, "none")},
	{Name: "tls", What: "`http`, `grpc`: asks over TLS. `tls`: how the handshake is made.",
		Value: keytable.Where(writesTLS, keytable.Mapping(tlsOf, checkTLSKeys))},
	{Name: "name", What: "`dns`: the name that is asked for. Required there.",
		Value: keytable.Optional(func(c *lb.Check) *string { return &dnsOf(c).Name }, hostName, "none")},
	{Name: "record", What: "`dns`: the type of record that is asked for.",
		Value: keytable.Field(func(c *lb.Check) *string {
			return &dnsOf(c).Type
		}, oneOf("A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT"), lb.DefaultCheckRecord)},
	{Name: "code", What: "`dns`: the response code that passes.",
		Value: keytable.Field(func(c *lb.Check) *string {
			return &dnsOf(c).Code
		}, oneOf("NOERROR", "NXDOMAIN", "SERVFAIL", "REFUSED"), lb.DefaultCheckCode)},
	{Name: "answer", What: "`dns`: the data that a record of the answer must have, such as `192.0.2.1`.",
		Value: keytable.Optional(func(c *lb.Check) *string { return &dnsOf(c).Answer }, plainText(maxAnswer),
			"any or none")},
	{Name: "tcp", What: "`dns`: asks over TCP.",
		Value: keytable.Field(func(c *lb.Check) *bool { return &dnsOf(c).TCP }, keytable.Bool, false)},
	{Name: "send", What: "`udp`: the content of the datagram.",
		Value: keytable.Computed(func(c *lb.Check) (string, bool) {
			return string(udpOf(c).Send), len(udpOf(c).Send) > 0
		},
			func(c *lb.Check, text string) { udpOf(c).Send = []byte(text) }, payload, "", "nothing")},
	{Name: "expect",
		What: "`udp`: the beginning of the answer. Without it any answer passes where `send` is written, and otherwise a backend passes that sends no ICMP error.",
		Value: keytable.Computed(func(c *lb.Check) (string, bool) {
			return string(udpOf(c).Expect), len(udpOf(c).Expect) > 0
		},
			func(c *lb.Check, text string) { udpOf(c).Expect = []byte(text) }, payload, "", "nothing")},
	{Name: "service", What: "`grpc`: the service whose health is asked for.",
		Value: keytable.Optional(func(c *lb.Check) *string { return &grpcOf(c).Service }, plainText(maxAnswer),
			"the server's as a whole")},
	{Name: "command",
		What: "`exec`: the program, by its absolute path, and its arguments. Required there. Its environment has the backend's address and port.",
		Value: keytable.Sequence(func(c *lb.Check) *[]string { return &execOf(c).Command }, plainText(maxArgument),
			keytable.Length{Max: maxArguments, Empty: "name the program", TooMany: "that there can be",
				Absent: "none"})},
}

var checkTLSKeys = keytable.Table[lb.TLSCheck]{
	{Name: "verify", Required: true,
		What: "Whether the certificate must be signed by a trusted authority and be valid for this server.",
		Value: keytable.Computed(func(t *lb.TLSCheck) (bool, bool) { return t.Verify, true },
			func(t *lb.TLSCheck, on bool) { t.Verify = on }, keytable.Bool, false, "")},
	{Name: "server_name", What: "The server's name, which is sent (SNI) and verified.",
		Value: keytable.Optional(func(t *lb.TLSCheck) *string { return &t.ServerName }, hostName,
			"none is sent, and the address is verified")},
	{Name: "ca", What: "A file of the authorities' certificates (PEM).",
		Refused: "`verify: false`.",
		Value:   keytable.Optional(func(t *lb.TLSCheck) *string { return &t.CA }, absolutePath, "the host's")},
	{Name: "expiry", What: "Warns when the certificate expires within this time.",
		Value: keytable.Optional(func(t *lb.TLSCheck) *time.Duration {
			return &t.Expiry
		}, keytable.Duration(time.Hour, maxExpiry), "never")},
}
