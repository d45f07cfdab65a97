// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// others is the name in a limits file for the packages that it does not name.
const others = "others"

// limit bounds the figures of a package.
type limit struct{ files, block int }

// limits are the limits of a file: a line "FILES BLOCK PACKAGE" for each package with limits of its own, and one for
// the others. Lines that begin with "#" are comments.
type limits struct {
	file   string
	others limit
	own    map[string]limit
}

func readLimits(file string) (limits, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return limits{}, err
	}
	read := limits{file: file, own: map[string]limit{}}
	named := false
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		path, allowed, err := parseLimit(line)
		_, twice := read.own[path]
		switch {
		case err != nil:
		case twice || path == others && named:
			err = fmt.Errorf("%s has two lines", path)
		case path == others:
			read.others, named = allowed, true
		default:
			read.own[path] = allowed
		}
		if err != nil {
			return limits{}, fmt.Errorf("%s:%d: %v", file, i+1, err)
		}
	}
	if !named {
		return limits{}, fmt.Errorf("%s: no line for %q, which are the packages that it does not name", file, others)
	}
	return read, nil
}

func parseLimit(line string) (path string, allowed limit, err error) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return "", limit{}, fmt.Errorf("%q: want FILES BLOCK PACKAGE", line)
	}
	for i, number := range []*int{&allowed.files, &allowed.block} {
		if *number, err = strconv.Atoi(fields[i]); err != nil || *number < 1 {
			return "", limit{}, fmt.Errorf("%q: want a number of files from 1 on", fields[i])
		}
	}
	return fields[2], allowed, nil
}
