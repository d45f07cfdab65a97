// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"unicode"

	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// maxAPIClients bounds the subjects of client certificates that have a role.
const maxAPIClients = 1024

// subject is one attribute of the subject of certificates.
var subject = keytable.Scalar[Subject]{
	Parse: func(text string) (Subject, string) {
		attribute, value, _ := strings.Cut(text, "=")
		if attribute != "CN" && attribute != "OU" || value == "" || len(value) > maxArgument ||
			strings.ContainsFunc(value, unicode.IsControl) {
			return Subject{}, yamlfile.Quote(text) +
				" is not one attribute of a subject; write its common name as CN=ci, or an organizational unit as OU=operators"
		}
		return Subject{attribute, value}, ""
	},
	Show:   Subject.String,
	Kind:   "`CN=NAME` or `OU=NAME`",
	Schema: map[string]any{"type": "string", "pattern": "^(CN|OU)=.+$"},
}

// checkAPI refuses settings that would let no client in.
func (p *parser) checkAPI() {
	a := p.cfg.API
	switch {
	case !p.Written("api") || p.Bad("api") || p.Bad("api.tokens") || p.Bad("api.client_ca") || p.Bad("api.clients"):
	case a.Tokens == "" && a.ClientCA == "":
		p.Fail("api", "no client could use it: add tokens, or client_ca and clients")
	case a.ClientCA == "" && len(a.Clients) > 0:
		p.Fail("api.clients",
			"says what clients with a certificate may do, and without client_ca none is accepted; add client_ca or remove clients")
	case a.ClientCA != "" && len(a.Clients) == 0:
		p.Fail("api.client_ca",
			"vouches for clients, and without clients none of them may do anything; add clients, such as {subject: OU=operators, role: operate}")
	}
}
