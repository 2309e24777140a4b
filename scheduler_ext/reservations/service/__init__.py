"""Operations of people on reservation plans: list, preview, create, edit, approve and reject."""
