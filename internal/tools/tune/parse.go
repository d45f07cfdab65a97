// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

// maxProfileBytes limits a profile, which is written by hand.
const maxProfileBytes = 1 << 20

// Parse reads and checks a profile. name is the file's name, for messages. The error is a list of yamlfile.Problem,
// each with file, line and field.
func Parse(name string, data []byte) (*Profile, error) { return parse(name, data, nil) }

// parse reads a profile that may leave out items of base.
func parse(name string, data []byte, base *Profile) (*Profile, error) {
	p := &parser{yamlfile.NewFile(name), base}
	profile := &Profile{}
	if p.Decode(data, profileKind, profile) {
		for i, item := range profile.Items {
			p.item(i, item, profile.Items[:i])
		}
		if len(profile.Items) == 0 {
			p.Fail("items", "missing; a profile is a list of items")
		}
	}
	p.Problems.SortByLine()
	if err := p.Problems.Err(); err != nil {
		return nil, err
	}
	return profile, nil
}

// profileKind describes a profile in messages about a whole file.
var profileKind = yamlfile.Kind{Noun: "a profile", Needs: "a list of items", MaxBytes: maxProfileBytes}

type parser struct {
	*yamlfile.File
	base *Profile
}

// item reports the problems of an item.
func (p *parser) item(i int, item Item, before []Item) {
	fail := func(field, format string, args ...any) {
		p.Fail(yamlfile.Join(yamlfile.Element("items", i), field), format, args...)
	}
	if !idWord.MatchString(item.ID) {
		fail("id", "%q: use small letters, digits and dashes", item.ID)
	}
	if slices.ContainsFunc(before, func(other Item) bool { return other.ID == item.ID }) {
		fail("id", "%s stands here twice", item.ID)
	}
	if item.Drop {
		if p.base == nil || !slices.Contains(p.base.IDs(), item.ID) {
			fail("drop", "there is no item %s to leave out", item.ID)
		}
		return
	}
	if err := setting.CheckItem(item.Setting); err != nil {
		fail("setting", "%v", err)
	}
	for _, role := range item.Roles {
		if role != RoleProxy && !slices.Contains(Roles, role) {
			fail("roles", "%q is no role: use balancer, proxy, web, client", role)
		}
	}
	if len(item.Roles) == 0 {
		fail("roles", "missing; say whose setting it is: balancer, proxy, web, client")
	}
	for _, mode := range item.Modes {
		if !slices.Contains(Modes(), mode) {
			fail("modes", "%q is no mode: use %s", mode, strings.Join(Modes(), ", "))
		}
	}
	p.values(item, fail)
	if item.Why == "" {
		fail("why", "missing; say what the value is good for")
	}
	if item.Source == "" {
		fail("source", "missing; say where the kernel's documentation explains it")
	}
}

// values reports the problems of an item's value and conditions.
func (p *parser) values(item Item, fail func(field, format string, args ...any)) {
	if item.Compare != "" && !slices.Contains(compares, item.Compare) {
		fail("compare", "%q: use one of %v", item.Compare, compares)
	}
	if item.Value.IsZero() && item.Compare != CompareNonzero {
		fail("value", "missing; give a value, or leave")
	}
	if item.Irreversible && !item.Value.leaves() {
		fail("oneway", "goes with value: leave; what cannot be taken back is not changed")
	}
	if item.Compare == CompareNonzero && !item.ReadOnly {
		fail("compare", "nonzero goes with readonly: true; there is nothing to write")
	}
	if item.Scope != "" && item.Scope != setting.ScopeMachine {
		fail("scope", "%q: use machine, or nothing", item.Scope)
	}
	if item.Needs.Card != "" && item.Needs.Card != "physical" {
		fail("needs.card", "%q: use physical, or nothing", item.Needs.Card)
	}
	if _, ok := parseVersion(item.Needs.Kernel); !ok && item.Needs.Kernel != "" {
		fail("needs.kernel", "%q is no version: use one such as 5.12", item.Needs.Kernel)
	}
}

var idWord = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// parseVersion reads the first two numbers of a kernel's version.
func parseVersion(text string) (version [2]int, ok bool) {
	fields := strings.SplitN(text, ".", 3)
	if len(fields) < 2 {
		return version, false
	}
	second, _, _ := strings.Cut(fields[1], "-")
	for i, field := range []string{fields[0], second} {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 {
			return version, false
		}
		version[i] = n
	}
	return version, true
}
