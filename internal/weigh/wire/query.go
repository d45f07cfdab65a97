// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"

	"github.com/miekg/dns"
)

// query returns a DNS query for the A record of a name, without its identification, and the length of its question.
func query(name string) (message []byte, question int, err error) {
	if _, ok := dns.IsDomainName(name); !ok || strings.Contains(name, `\`) {
		return nil, 0, wrongLoad("%q is no domain name", name)
	}
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), dns.TypeA)
	m.Id = 0
	message, err = m.Pack()
	if err != nil {
		return nil, 0, wrongLoad("a query for %q: %v", name, err)
	}
	const header = 12
	return message, len(message) - header, nil
}

func wrongLoad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLoad, fmt.Sprintf(format, args...))
}
