"""Named entities: character CNN, biLSTM, CRF."""
