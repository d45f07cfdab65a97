// SPDX-License-Identifier: Apache-2.0

package nic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Files are cards in a copied or simulated file system. Each has a JSON object of settings, DIR/CARD.json. They have
// the limits of drivers: a ring size or a number of queues beyond the maximum is rejected.
type Files struct{ Dir string }

// Close does nothing.
func (f Files) Close() error { return nil }

func (f Files) path(card string) (string, error) {
	if card == "" || strings.ContainsAny(card, "/\x00") || card == "." || card == ".." {
		return "", fmt.Errorf("%s: %w", card, ErrNoCard)
	}
	return filepath.Join(f.Dir, card+".json"), nil
}

func (f Files) load(card string) (map[string]string, error) {
	path, err := f.path(card)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		// Nothing is known of the card, as for a loopback.
		return nil, fmt.Errorf("%w (%s is not there)", ErrUnsupported, path)
	}
	if err != nil {
		return nil, err
	}
	var settings map[string]string
	if err := json.Unmarshal(data, &settings); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return settings, nil
}

// Get returns a setting.
func (f Files) Get(card, setting string) (string, error) {
	settings, err := f.load(card)
	if err != nil {
		return "", fmt.Errorf("read %s of %s: %w", setting, card, err)
	}
	value, ok := settings[setting]
	if !ok {
		return "", fmt.Errorf("read %s of %s: %w", setting, card, ErrUnsupported)
	}
	return value, nil
}

// Set changes a setting. It replaces the whole file.
func (f Files) Set(card, setting, value string) error {
	settings, err := f.load(card)
	if err == nil {
		err = allowed(settings, setting, value)
	}
	if err != nil {
		return fmt.Errorf("set %s of %s to %s: %w", setting, card, value, err)
	}
	settings[setting] = value
	return Save(f.Dir, card, settings)
}

func allowed(settings map[string]string, setting, value string) error {
	if _, ok := settings[setting]; !ok {
		return ErrUnsupported
	}
	if strings.HasPrefix(setting, Feature) {
		_, err := parseOnOff(setting, value)
		return err
	}
	most, ok := settings[setting+".max"]
	if !ok {
		return nil
	}
	count, err1 := strconv.Atoi(value)
	limit, err2 := strconv.Atoi(most)
	if errors.Join(err1, err2) != nil || count > limit {
		return fmt.Errorf("%w: at most %s", ErrValue, most)
	}
	return nil
}

// Save writes the settings of a card into a directory of Files.
func Save(dir, card string, settings map[string]string) error {
	path, err := Files{dir}.path(card)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
