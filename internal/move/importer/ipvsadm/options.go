// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"fmt"
	"slices"
	"strings"
)

// options are the options of a command.
type options struct {
	// command is the letter or long name of the operation.
	command string
	// kind is t, u, f or sctp. service is the address or the mark that follows.
	kind, service string
	// server is the backend's address. mode is g, i or m.
	server, mode string
	scheduler    string
	flags        string
	weight       string
	upper, lower string
	timeout      string // of persistence; "": no persistence, "default": no value given
	netmask      string
	engine       string // --pe
	tunType      string
	tunPort      string
	onePacket    bool
	values       []string // of --set
}

// long maps long options to their letter or name.
var long = map[string]string{
	"add-service": "A", "edit-service": "E", "delete-service": "D", "clear": "C", "restore": "R", "save": "S",
	"add-server":  "a",
	"edit-server": "e", "delete-server": "d", "list": "L", "zero": "Z", "set": "set", "start-daemon": "start-daemon",
	"stop-daemon": "stop-daemon",
	"tcp-service": "t", "udp-service": "u", "sctp-service": "sctp", "fwmark-service": "f", "ipv6": "6",
	"scheduler": "s", "persistent": "p",
	"netmask": "M", "pe": "pe", "real-server": "r", "gatewaying": "g", "ipip": "i", "masquerading": "m", "weight": "w",
	"u-threshold": "x",
	"l-threshold": "y", "tun-type": "tun-type", "tun-port": "tun-port", "tun-nocsum": "tun-nocsum",
	"tun-csum":    "tun-csum",
	"tun-remcsum": "tun-remcsum", "sched-flags": "b", "ops": "o", "numeric": "n", "exact": "n",
	"mcast-interface": "mcast", "syncid": "mcast",
	"sync-maxlen": "mcast", "mcast-group": "mcast", "mcast-port": "mcast", "mcast-ttl": "mcast",
}

// bare are the options that take no value.
var bare = []string{"A", "E", "D", "C", "R", "S", "a", "e", "d", "L", "l", "Z", "6", "g", "i", "m", "o", "n",
	"tun-nocsum", "tun-csum", "tun-remcsum"}

var commands = []string{"A", "E", "D", "C", "R", "S", "a", "e", "d", "L", "l", "Z"}

// parse reads the words of a command.
func parse(words []string) (options, error) {
	var o options
	for len(words) > 0 {
		name, value, rest, err := next(words)
		if err != nil {
			return o, err
		}
		words = rest
		if err := o.take(name, value, &words); err != nil {
			return o, err
		}
	}
	if o.command == "" {
		return o, fmt.Errorf("no command such as -A or -a")
	}
	return o, nil
}

// next splits off the next option: its letter or name, and its value if both are one word.
func next(words []string) (name, value string, rest []string, err error) {
	word := words[0]
	switch {
	case strings.HasPrefix(word, "--"):
		text, value, _ := strings.Cut(word[2:], "=")
		name, known := long[text]
		if !known {
			return "", "", nil, fmt.Errorf("the option --%s is unknown", text)
		}
		return name, value, words[1:], nil
	case len(word) < 2 || word[0] != '-':
		return "", "", nil, fmt.Errorf("%q stands where an option should", word)
	}
	name = word[1:2]
	switch {
	case len(word) == 2:
		return name, "", words[1:], nil
	case slices.Contains(bare, name): // several letters in a word
		return name, "", append([]string{"-" + word[2:]}, words[1:]...), nil
	}
	return name, word[2:], words[1:], nil
}

// take stores an option, and takes its value from the words if it needs one.
func (o *options) take(name, value string, words *[]string) error {
	if slices.Contains(commands, name) {
		if o.command != "" {
			return fmt.Errorf("the commands -%s and -%s in one line", o.command, name)
		}
		o.command = name
		return nil
	}
	fields := map[string]*string{"s": &o.scheduler, "b": &o.flags, "w": &o.weight, "x": &o.upper, "y": &o.lower,
		"M": &o.netmask, "pe": &o.engine,
		"r": &o.server, "tun-type": &o.tunType, "tun-port": &o.tunPort, "mcast": new(string)}
	switch name {
	case "t", "u", "f", "sctp":
		o.kind = name
		return needed(name, value, words, &o.service)
	case "g", "i", "m":
		o.mode = name
	case "o":
		o.onePacket = true
	case "6", "n", "tun-nocsum", "tun-csum", "tun-remcsum":
	case "p":
		o.timeout = "default"
		if value != "" {
			o.timeout = value
		} else if len(*words) > 0 && !strings.HasPrefix((*words)[0], "-") {
			o.timeout, *words = (*words)[0], (*words)[1:]
		}
	case "set", "start-daemon", "stop-daemon":
		o.command, o.values, *words = name, *words, nil
	default:
		into, known := fields[name]
		if !known {
			return fmt.Errorf("the option -%s is unknown", name)
		}
		return needed(name, value, words, into)
	}
	return nil
}

// needed takes the value of an option that requires one.
func needed(name, value string, words *[]string, into *string) error {
	if value == "" {
		if len(*words) == 0 {
			return fmt.Errorf("the option -%s has no value", name)
		}
		value, *words = (*words)[0], (*words)[1:]
	}
	*into = value
	return nil
}
